"""What a record of a trace file has of an event: each value's JSON, and the event's fields that it gives back.

A value that restores nothing is made of fields that are elsewhere in the record, for other tools.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from srd.proto.trace import PATH_BITS, packet_number
from srd.proto.wire.data import HEADER_BYTES
from srd.proto.wire.status import Status

Fields = dict[str, Any]
json_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode
_NAMES: Final = {int: "an integer", float: "a number", str: "a string", bool: "a boolean"}


def _nothing_untrusted(_value: object, _kinds: Mapping[str, Any]) -> Fields:
    return {}


@dataclass(frozen=True, slots=True)
class Value:
    """One value in a record."""

    encode: Callable[[Any], str]
    """Returns its JSON, of an event."""
    restored: tuple[str, ...] = ()
    """The event's fields that can be read from it."""
    decode_untrusted: Callable[[object, Mapping[str, Any]], Fields] = _nothing_untrusted
    """Returns these fields, of its JSON and the types of the event's fields. Raises ValueError for other JSON."""


def event_field(name: str) -> Value:
    """One field, as it is."""

    def encode(event: Any) -> str:
        value = getattr(event, name)
        return str(value) if type(value) is int else json_text(value)

    return Value(encode, (name,), lambda value, kinds: {name: checked(value, kinds[name])})


def milliseconds(name: str) -> Value:
    """A time, which the event has in microseconds, to a tenth."""
    return Value(
        lambda event: repr(round(getattr(event, name) / 1e3, 4)),
        (name,),
        lambda value, _: {name: round(checked(value, float) * 1e3, 1)},
    )


def _number_untrusted(value: object, _kinds: Mapping[str, Any]) -> Fields:
    number = checked(value, int)
    if number < 0:
        raise ValueError("is negative")
    return {"path": number & ((1 << PATH_BITS) - 1), "path_sequence": number >> PATH_BITS}


NUMBER: Final = Value(
    lambda event: str(packet_number(event.path, event.path_sequence)), ("path", "path_sequence"), _number_untrusted
)
"""The number of a packet (`srd.proto.trace.packet_number`)."""
DATAGRAM_BYTES: Final = Value(lambda event: str(event.payload_bytes + event.packets * HEADER_BYTES))
"""Bytes of a burst's packets in all: payload and headers, without what encryption adds."""
ENDING: Final = Value(lambda event: '"clean"' if event.status == Status.OK.name else '"error"')
"""Whether a peer ended in order, in QUIC's words."""


def _ack_frame(event: Any) -> str:
    if not event.acked:
        return '{"frame_type":"ack"}'
    return f'{{"frame_type":"ack","acked_ranges":[{",".join(f"[{number}]" for number in event.acked)}]}}'


def _acked_untrusted(value: object, _kinds: Mapping[str, Any]) -> Fields:
    ranges = value.get("acked_ranges", []) if isinstance(value, dict) else None
    if not isinstance(ranges, list) or not all(isinstance(each, list) and len(each) == 1 for each in ranges):
        raise ValueError("is no frame that acknowledges bursts")
    return {"acked": tuple(checked(each[0], int) for each in ranges)}


ACK_FRAME: Final = Value(_ack_frame, ("acked",), _acked_untrusted)
"""A frame that acknowledges bursts; without ranges if it acknowledges none."""


def trigger(words: Mapping[str, str]) -> Value:
    """A reason, which QUIC's event has another word for; that of a newer writer is read as it is."""
    back = {word: reason for reason, word in words.items()}

    def decode_untrusted(value: object, kinds: Mapping[str, Any]) -> Fields:
        word = checked(value, kinds["trigger"])
        return {"trigger": back.get(word, word)}

    return Value(lambda event: json_text(words[event.trigger]), ("trigger",), decode_untrusted)


def address(*, is_source: bool) -> Value:
    """The address at one end of a connection, of which the source has opened it.

    The core does not know this end's: it is the unspecified one.
    """

    def encode(event: Any) -> str:
        remote = event.address.rpartition(":")[0].removeprefix("[").removesuffix("]")
        if event.incoming is is_source:
            return json_text(remote)
        try:
            return '"::"' if ip_address(remote).version == 6 else '"0.0.0.0"'
        except ValueError:  # in virtual time
            return '"0.0.0.0"'

    return Value(encode)


def checked(value: object, wanted: Any) -> Any:
    """Return a JSON value of this type; a bool is no number, and a number is finite. Raises ValueError."""
    if wanted in (int, float):
        kinds = (int,) if wanted is int else (int, float)
        fits = isinstance(value, kinds) and not isinstance(value, bool) and _bounded(value)
    else:
        fits = isinstance(value, wanted)
    if not fits:
        raise ValueError(f"is not {_NAMES[wanted]}")
    return value


def _bounded(value: float) -> bool:
    return -(1 << 64) < value < 1 << 64 and not math.isnan(value)
