"""What a record of a trace file has of an event: each value's JSON, and the event's fields that it gives back.

`encode` returns the JSON of an event's value. `decode_untrusted` is the inverse for the fields named in `restored`; it
raises ValueError for JSON that is no such value. A value that restores nothing is made of fields that are elsewhere in
the record, for other tools.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

from srd.proto.trace import PATH_BITS, packet_number
from srd.proto.wire.data import HEADER_BYTES
from srd.proto.wire.status import Status

Fields = dict[str, Any]
json_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode
_NAMES: Final = {int: "an integer", float: "a number", str: "a string", bool: "a boolean"}


class Value(ABC):
    """One value in a record."""

    restored: tuple[str, ...] = ()
    """The event's fields that can be read from it."""

    @abstractmethod
    def encode(self, event: Any) -> str:
        """Return its JSON."""

    def decode_untrusted(self, value: object, kinds: Mapping[str, Any]) -> Fields:  # noqa: ARG002 - most restore some
        """Return the fields; `kinds`: the types of the event's. Raises ValueError."""
        return {}


class EventField(Value):
    """One field, as it is."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.restored = (name,)

    def encode(self, event: Any) -> str:
        """Return its JSON."""
        value = getattr(event, self._name)
        return str(value) if type(value) is int else json_text(value)

    def decode_untrusted(self, value: object, kinds: Mapping[str, Any]) -> Fields:
        """Return the field."""
        return {self._name: checked(value, kinds[self._name])}


class Milliseconds(Value):
    """A time, which the event has in microseconds, to a tenth."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.restored = (name,)

    def encode(self, event: Any) -> str:
        """Return its JSON."""
        return repr(round(getattr(event, self._name) / 1e3, 4))

    def decode_untrusted(self, value: object, kinds: Mapping[str, Any]) -> Fields:  # noqa: ARG002 - a number always
        """Return the field."""
        return {self._name: round(checked(value, float) * 1e3, 1)}


class Number(Value):
    """The number of a packet (`srd.proto.trace.packet_number`)."""

    restored = ("path", "path_sequence")

    def encode(self, event: Any) -> str:
        """Return its JSON."""
        return str(packet_number(event.path, event.path_sequence))

    def decode_untrusted(self, value: object, kinds: Mapping[str, Any]) -> Fields:  # noqa: ARG002 - integers always
        """Return path and path sequence."""
        number = checked(value, int)
        if number < 0:
            raise ValueError("is negative")
        return {"path": number & ((1 << PATH_BITS) - 1), "path_sequence": number >> PATH_BITS}


class DatagramBytes(Value):
    """Bytes of a burst's packets in all: payload and headers, without what encryption adds."""

    def encode(self, event: Any) -> str:
        """Return its JSON."""
        return str(event.payload_bytes + event.packets * HEADER_BYTES)


class AckFrame(Value):
    """A frame that acknowledges bursts."""

    restored = ("acked",)

    def encode(self, event: Any) -> str:
        """Return its JSON; there are no ranges if it acknowledges no burst."""
        if not event.acked:
            return '{"frame_type":"ack"}'
        return f'{{"frame_type":"ack","acked_ranges":[{",".join(f"[{number}]" for number in event.acked)}]}}'

    def decode_untrusted(self, value: object, kinds: Mapping[str, Any]) -> Fields:  # noqa: ARG002 - integers always
        """Return the numbers of the bursts."""
        ranges = value.get("acked_ranges", []) if isinstance(value, dict) else None
        if not isinstance(ranges, list) or not all(isinstance(each, list) and len(each) == 1 for each in ranges):
            raise ValueError("is no frame that acknowledges bursts")
        return {"acked": tuple(checked(each[0], int) for each in ranges)}


class Trigger(Value):
    """A reason, which QUIC's event has another word for."""

    restored = ("trigger",)

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words
        self._back = {word: trigger for trigger, word in words.items()}

    def encode(self, event: Any) -> str:
        """Return its JSON."""
        return json_text(self._words[event.trigger])

    def decode_untrusted(self, value: object, kinds: Mapping[str, Any]) -> Fields:
        """Return the reason; that of a newer writer as it is."""
        word = checked(value, kinds["trigger"])
        return {"trigger": self._back.get(word, word)}


class Ending(Value):
    """Whether a peer ended in order, in QUIC's words."""

    def encode(self, event: Any) -> str:
        """Return its JSON."""
        return '"clean"' if event.status == Status.OK.name else '"error"'


class Addresses(Value):
    """The address at one end of a connection, `src` being the one that opened it.

    The core does not know this end's: it is the unspecified one.
    """

    def __init__(self, end: str) -> None:
        self._is_source = end == "src"

    def encode(self, event: Any) -> str:
        """Return its JSON."""
        remote = event.address.rpartition(":")[0].removeprefix("[").removesuffix("]")
        if event.incoming is self._is_source:
            return json_text(remote)
        try:
            return '"::"' if ip_address(remote).version == 6 else '"0.0.0.0"'
        except ValueError:  # in virtual time
            return '"0.0.0.0"'


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
