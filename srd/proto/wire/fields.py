"""The fields of every packet type, in order: the one table that programs which show or make packets are built from.

Most packets of `wire.control` and all of `srd.contrib.scapy` are made of it; the Wireshark dissector
(`srd/contrib/wireshark/srd.lua`), the data header, ACK, PROBE, and the tables of PROTOCOL.md are compared with it field
by field by their tests.

Fields follow each other without gaps, so a field's offset is the sum of what precedes it. All numbers are unsigned and
in network byte order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from srd.proto.base.security import SecurityMode
from srd.proto.wire.data import ABORTED, IMMEDIATE, NOT_READY, OPCODE_BITS, WITH_ACK, Opcode, PacketType
from srd.proto.wire.protected import KEY_PHASE
from srd.proto.wire.status import RefuseReason, Status


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a packet: a number, bytes, or a list of records."""

    name: str
    size: int | str | None
    """In bytes: a number of so many, or bytes if `is_bytes`; as many bytes (or records) as an earlier field says, which
    has this name; or None: all bytes that are left."""
    names: type[IntEnum] | None = None
    """What values mean."""
    names_mask: int = 0xFF
    """The bits of the value that `names` is about."""
    flags: tuple[tuple[int, str], ...] = ()
    """Names of single bits, with their masks."""
    only_if: str = ""
    """The field is there only if the earlier field of this name is not 0."""
    records: tuple[Field, ...] = ()
    """The fields of each record."""
    is_id: bool = False
    """Whether the number is an identifier, which is shown in hexadecimal."""
    is_bytes: bool = False
    """Whether a field of fixed size is no number."""

    @property
    def measures(self) -> str:
        """The bytes whose length this field is; empty: none."""
        return self.name.removesuffix("_length") if self.name.endswith("_length") else ""


PREFIX: Final = (
    Field("version", 1),
    Field("type", 1, names=PacketType),
    Field("flags", 1),
    Field("path", 1),
    Field("path_sequence", 4),
    Field("context", 8, is_id=True),
)
"""What every packet begins with."""

DATA_FLAGS: Final = Field(
    "flags",
    1,
    names=Opcode,
    names_mask=OPCODE_BITS,
    flags=((IMMEDIATE, "IMMEDIATE"), (ABORTED, "ABORTED"), (WITH_ACK, "WITH_ACK"), (KEY_PHASE, "KEY_PHASE")),
)
PROTECTED_FLAGS: Final = Field("flags", 1, flags=((KEY_PHASE, "KEY_PHASE"),))

REPORT: Final = (
    Field("path", 1),
    Field("reserved", 3, is_bytes=True),
    Field("path_sequence", 4),
    Field("sent_us", 4),
    Field("ack_delay_us", 4),
    Field("packets", 4),
    Field("duplicates", 2),
    Field("ecn_ce", 2),
    Field("received_us", 4),
)
"""A path report of an ACK."""

_OWN_CONTEXT: Final = Field("own_context", 8, is_id=True)
_PADDING: Final = Field("padding", None)
_STATUS: Final = Field("status", 1, names=Status)
_LIMITS: Final = (
    _OWN_CONTEXT,
    Field("credit_bytes", 8),
    Field("credit_messages", 4),
    Field("max_message_bytes", 4),
    Field("window_packets", 4),
    Field("datagram_bytes", 2),
)

BODIES: dict[PacketType, tuple[Field, ...]] = {
    PacketType.DATA: (
        Field("psn", 8),
        Field("sent_us", 4),
        Field("message", 4),
        Field("length", 4),
        Field("immediate", 4),
        Field("offset", 8),
        Field("key", 8, is_id=True),
        Field("payload", None),
    ),
    PacketType.ACK: (
        Field("cumulative", 8),
        Field("credit_bytes", 8),
        Field("credit_messages", 8),
        Field("bitmap_length", 2),
        Field("report_count", 1),
        Field("flags", 1, flags=((NOT_READY, "NOT_READY"),)),
        Field("remote_path", 1),
        Field("reserved", 3, is_bytes=True),
        Field("reports", "report_count", records=REPORT),
        Field("bitmap", "bitmap_length"),
    ),
    PacketType.HELLO: (
        *_LIMITS,
        Field("cookie_length", 1),
        Field("security", 1, names=SecurityMode),
        Field("source_digest", 8, is_id=True),
        Field("paths", 1),
        Field("cookie", "cookie_length"),
        Field("message_length", 2, only_if="security"),
        Field("message", "message_length", only_if="security"),
        _PADDING,
    ),
    PacketType.RETRY: (
        Field("cookie_length", 1),
        Field("cookie", "cookie_length"),
        Field("credential_length", 2),
        Field("credential", "credential_length"),
        _PADDING,
    ),
    PacketType.ACCEPT: (*_LIMITS, Field("behind_nat", 1)),
    PacketType.REFUSE: (_STATUS, Field("reason", 1, names=RefuseReason)),
    PacketType.PROBE: (
        _OWN_CONTEXT,
        Field("sent_us", 4),
        Field("ack_path", 1),
        Field("ack_remote_path", 1),
        _PADDING,
    ),
    PacketType.CLOSE: (_OWN_CONTEXT,),
    PacketType.CLOSED: (_OWN_CONTEXT,),
    PacketType.RESET: (_OWN_CONTEXT, Field("token", None)),
    PacketType.NACK: (Field("message", 4), _STATUS),
    PacketType.PATH_CHALLENGE: (Field("token", 8, is_id=True), Field("remote_path", 1)),
    PacketType.PATH_RESPONSE: (Field("token", 8, is_id=True),),
    PacketType.SECURE_ACCEPT: (Field("message", None),),
    PacketType.PROTECTED: (Field("data", None),),
    PacketType.PULL_REQUEST: (Field("sent_bytes", 8), Field("backlog_bytes", 8), Field("number", 8)),
    PacketType.PULL: (Field("limit_bytes", 8), Field("number", 8), Field("unsolicited_bytes", 4)),
}
"""What follows the prefix."""


def prefix_of(kind: PacketType) -> tuple[Field, ...]:
    """Return the prefix's fields, with the flags that this type has."""
    flags = {PacketType.DATA: DATA_FLAGS, PacketType.PROTECTED: PROTECTED_FLAGS}.get(kind)
    return PREFIX if flags is None else tuple(flags if field.name == "flags" else field for field in PREFIX)
