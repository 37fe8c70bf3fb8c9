"""scripts.harness.forge: packets are reproducible by seed, and of every type."""

from __future__ import annotations

from random import Random

from scripts.harness.forge import OpenPeer, PacketForge
from srd.proto.base.errors import PacketError
from srd.proto.wire.control import decode_untrusted
from srd.proto.wire.data import VERSION, PacketType

OPENED = OpenPeer(context=0x1122334455667788, own_context=7, segment_bytes=1416)
CAPTURED = [bytes([VERSION, PacketType.DATA]) + bytes(range(200))]


def forged(seed: int, count: int) -> list[bytes]:
    forge = PacketForge(Random(seed), peers=[OPENED], captured=CAPTURED)
    return [forge.packet() for _ in range(count)]


def test_packet__is_reproducible() -> None:
    assert forged(5, 500) == forged(5, 500)
    assert forged(5, 500) != forged(6, 500)


def test_packet__every_type_valid_and_malformed_with_and_without_a_peer() -> None:
    packets = forged(1, 5000)
    well_formed, malformed, addressed = set(), 0, 0
    for packet in packets:
        addressed += packet[8:16] == OPENED.context.to_bytes(8, "big")
        try:
            well_formed.add(type(decode_untrusted(packet)).__name__)
        except PacketError:
            malformed += 1
    control_types = {name.replace("_", "").lower() for name in PacketType.__members__} - {"data"}
    assert {name.lower() for name in well_formed} == control_types
    assert malformed > 500
    assert 1000 < addressed < 4500
    assert {packet[1] for packet in packets if len(packet) > 1} >= set(PacketType)
