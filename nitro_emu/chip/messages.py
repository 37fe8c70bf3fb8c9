"""What card and chip send each other: one CBOR item a packet of a Unix SOCK_SEQPACKET connection.

    [17, {"Attestation": {"nonce": h'...'}}] ->   [17, {"Attestation": {"document": h'...'}}]
    [18, "Status"]                           ->   [18, {"Status": {"state": "RUN", ...}}]
    [19, {"Attestation": {"nonce": "text"}}] ->   [19, {"Error": "InvalidArgument"}]
    [20, {"CheckUpdate": {...}}]             ->   [20, {"Refused": "the version 3 is below 4 ..."}]

A number is the sender's; the answer has the same, so that one that comes too late is not taken for another. Requests
are the Nitro Secure Module's Attestation, with its limits, and Boot, CheckUpdate and Status. The answer to a Boot that
succeeds is followed by one more packet: the card's secret, 32 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nitro_emu.errors import TrustError
from nitro_emu.trust.cbor import dumps, loads_untrusted

MAX_REQUEST_BYTES: Final = 0x1000
MAX_RESPONSE_BYTES: Final = 0x3000
"""The Nitro Secure Module's limits."""

SECRET_BYTES: Final = 32

CHIP_SOCKET: Final = "chip.sock"
"""In the chip's directory."""

MAX_ID: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ChipMessage:
    """A request or an answer."""

    number: int
    """By which an answer belongs to its request."""

    name: str
    fields: Mapping[str, Any]
    text: str = ""
    """Of an Error or a refusal, which have no fields."""


def encode(number: int, name: str, fields: Mapping[str, Any] | str | None = None) -> bytes:
    """Return the packet of a request or an answer; without fields it is the name alone, as the NSM has it."""
    return dumps([number, name if fields is None else {name: fields if isinstance(fields, str) else dict(fields)}])


def decode_untrusted(packet: bytes, *, name: str, max_bytes: int) -> ChipMessage:
    """Return the message in a packet; `name` says in errors what it is. Raises TrustError."""
    item = loads_untrusted(packet, name=name, max_bytes=max_bytes)
    if not isinstance(item, list) or len(item) != 2:
        raise TrustError(f"{name} is no array of a number and a message")
    number, content = item
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_ID:
        raise TrustError(f"{name} has the number {number!r:.50}, which is none from 0 to {MAX_ID}")
    if isinstance(content, str):
        return ChipMessage(number, content, {})
    if not isinstance(content, dict) or len(content) != 1:
        raise TrustError(f"{name} has no single message")
    ((kind, fields),) = content.items()
    if not isinstance(kind, str):
        raise TrustError(f"{name} has the message {kind!r:.50}, which is no name")
    if isinstance(fields, str):
        return ChipMessage(number, kind, {}, fields)
    if not isinstance(fields, dict) or not all(isinstance(key, str) for key in fields):
        raise TrustError(f"{name} has no fields by their names")
    return ChipMessage(number, kind, fields)


def one_line(text: str) -> str:
    """Return a reason as it is sent: one line of at most 1,000 characters, of those that can be printed."""
    return "".join(character if character.isprintable() else "?" for character in text)[:1000]
