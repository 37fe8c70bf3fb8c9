# SPDX-License-Identifier: GPL-2.0-only
"""SRD's packets as layers of scapy: every packet type, made of the table in `srd.proto.wire.fields`.

    from srd.contrib.scapy import SRD, SRDProbe
    packet = IP(dst="192.0.2.1") / UDP(sport=4000, dport=19870) / SRD(context=7, path=2) / SRDProbe(own_context=9)

`SRD` is the prefix; the layer behind it sets `type`. What is not given is computed: lengths, counts, and the padding of
a HELLO to the size that it proposes. What is given is sent, whatever it contradicts. A packet that is cut short is
dissected as far as the prefix, and the rest is `Raw`.

UDP at the default port is dissected as SRD. An endpoint has more ports than that one: dissect others by
`SRD(packet[UDP].load)`, or bind them (`bind_layers(UDP, SRD, sport=4000)`). Encrypted packets stay encrypted:
`srd.secure.key_log.KeyLog` opens their bytes. Several packets that the kernel joined (GRO) are one datagram here.

Needs the extra `scapy`, which is under the GPL, version 2; so is this file.
"""

from __future__ import annotations

from typing import Any, Final

from srd.proto.wire.data import DEFAULT_PORT, PREFIX_BYTES, VERSION, PacketType
from srd.proto.wire.fields import BODIES, PREFIX, REPORT, Field, prefix_of

try:
    from scapy import fields as of
    from scapy.layers.inet import UDP
    from scapy.packet import Packet, bind_bottom_up, bind_layers
except ModuleNotFoundError as missing:
    if missing.name != "scapy":
        raise
    raise ImportError("srd.contrib.scapy needs scapy; install it, in the checkout: pip install '.[scapy]'") from None

CARD_PORT: Final = 19875
"""The UDP port of emulated cards (nitro_emu/gid.py)."""
MAX_FUZZED_BYTES: Final = 1000
"""Longest content of a field that scapy's `fuzz` makes."""
_NUMBERS: Final[dict[Any, Any]] = {1: of.ByteField, 2: of.ShortField, 4: of.IntField, 8: of.LongField}
_LENGTHS: Final = {1: "B", 2: "!H"}


class FlagsField(of.ByteField):
    """Flags whose meaning depends on the packet's type: an enumeration in some bits, names of single other bits."""

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        """Return the names, or the number if not all of it has names."""
        field = _flags_of(pkt, self.name)
        names = [name for mask, name in field.flags if x & mask]
        rest = x & ~sum(mask for mask, _ in field.flags)
        if field.names is not None and not rest & ~field.names_mask:
            return "|".join([field.names(rest).name, *names])
        return str(x) if rest else "|".join(names) or "0"


def _flags_of(packet: Packet | None, name: str) -> Field:
    """Return the table's field for the flags of this packet."""
    if isinstance(packet, SRD) and packet.type in set(PacketType):
        fields = prefix_of(PacketType(packet.type))
    else:
        fields = BODIES[PacketType.ACK] if isinstance(packet, SRDAck) else PREFIX
    return next(field for field in fields if field.name == name)


def _scapy_field(field: Field, *, among: tuple[Field, ...]) -> Any:
    """Return scapy's field for one of the table; `among` are the fields of its packet."""
    made = _lists(field, among=among) or _lengths(field, among=among) or _numbers(field)
    if not field.only_if:
        return made
    return of.ConditionalField(made, lambda packet: bool(packet.getfieldval(field.only_if)))


def _lists(field: Field, *, among: tuple[Field, ...]) -> Any:
    size = field.size
    if isinstance(size, str):
        measured = lambda packet: packet.getfieldval(size)  # noqa: E731 - as scapy wants it
        if field.records:
            return of.PacketListField(field.name, [], SRDReport, count_from=measured)
        most = next(2 ** (8 * other.size) - 1 for other in among if other.name == size and isinstance(other.size, int))
        return of.XStrLenField(field.name, b"", length_from=measured, max_length=min(most, MAX_FUZZED_BYTES))
    if size is None:
        return of.XStrField(field.name, None if field.name == "padding" else b"")
    return of.XStrFixedLenField(field.name, bytes(size), length=size) if field.is_bytes else None


def _lengths(field: Field, *, among: tuple[Field, ...]) -> Any:
    """Return the field for what another one's size is."""
    for other in among:
        if other.size == field.name and isinstance(field.size, int):
            of_what: Any = {"count_of" if other.records else "length_of": other.name}
            return of.FieldLenField(field.name, None, fmt=_LENGTHS[field.size], **of_what)
    return None


def _numbers(field: Field) -> Any:
    if field.flags or field.name == "flags":
        return FlagsField(field.name, 0)
    if field.names is not None:
        return of.ByteEnumField(field.name, 0, {member.value: member.name for member in field.names})
    if field.is_id:
        return of.XLongField(field.name, 0)
    return _NUMBERS[field.size](field.name, VERSION if field.name == "version" else 0)


class SRD(Packet):
    """The prefix of every packet; what follows is the layer of its type."""

    name = "SRD"
    fields_desc = [_scapy_field(field, among=PREFIX) for field in PREFIX]  # noqa: RUF012 - scapy's interface

    def answers(self, other: Packet) -> bool:
        """Whether this may be the answer to another packet, for `sr`: what it says of its sender's context."""
        asked = getattr(other.payload, "own_context", None)
        return isinstance(other, SRD) and asked is not None and asked == self.context


class SRDReport(Packet):
    """A path report of an ACK."""

    name = "SRD path report"
    fields_desc = [_scapy_field(field, among=REPORT) for field in REPORT]  # noqa: RUF012

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """Return no payload: what follows is the next report."""
        return b"", s


class _Body(Packet):
    """What follows the prefix."""

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Pad a HELLO that has no padding of its own to the size that it proposes."""
        if isinstance(self, SRDHello) and self.padding is None:
            pkt = pkt.ljust(self.datagram_bytes - PREFIX_BYTES, b"\0")
        return pkt + pay


def _layer(kind: PacketType) -> type[Packet]:
    """Return the layer for the body of a packet type, bound to the prefix."""
    words = kind.name.title().replace("_", "")
    fields = tuple(field for field in BODIES[kind] if field.name != "payload")  # scapy's own: the layer above
    described = [_scapy_field(field, among=fields) for field in fields]
    made: Any = type(_Body)  # scapy's metaclass
    layer: type[Packet] = made(
        f"SRD{words}", (_Body,), {"name": f"SRD {kind.name}", "fields_desc": described, "__module__": __name__}
    )
    bind_layers(SRD, layer, type=kind.value)
    return layer


SRDData = _layer(PacketType.DATA)
SRDAck = _layer(PacketType.ACK)
SRDHello = _layer(PacketType.HELLO)
SRDRetry = _layer(PacketType.RETRY)
SRDAccept = _layer(PacketType.ACCEPT)
SRDRefuse = _layer(PacketType.REFUSE)
SRDProbe = _layer(PacketType.PROBE)
SRDClose = _layer(PacketType.CLOSE)
SRDClosed = _layer(PacketType.CLOSED)
SRDReset = _layer(PacketType.RESET)
SRDNack = _layer(PacketType.NACK)
SRDPathChallenge = _layer(PacketType.PATH_CHALLENGE)
SRDPathResponse = _layer(PacketType.PATH_RESPONSE)
SRDSecureAccept = _layer(PacketType.SECURE_ACCEPT)
SRDProtected = _layer(PacketType.PROTECTED)
SRDPullRequest = _layer(PacketType.PULL_REQUEST)
SRDPull = _layer(PacketType.PULL)

for _port in (DEFAULT_PORT, CARD_PORT):
    bind_bottom_up(UDP, SRD, sport=_port)
    bind_bottom_up(UDP, SRD, dport=_port)
bind_layers(UDP, SRD, dport=DEFAULT_PORT)
