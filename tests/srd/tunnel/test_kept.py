from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from scapy.packet import Raw

from srd.tunnel.kept import MAX_AGE_S, MAX_BYTES, MAX_FLOWS, KeptPackets
from srd.tunnel.packets import InnerPacket, parse_untrusted
from tests.srd.tunnel.inner import SEED, V4, ipv4, tcp, udp

THERE, ELSEWHERE = (bytes(map(int, text.split("."))) for text in (V4[1], "10.88.0.3"))


def parsed(packet: bytes) -> InnerPacket:
    return parse_untrusted(packet, seed=SEED)


def segment(*, port: int = 1, payload: bytes = b"", to: str = V4[1]) -> bytes:
    return bytes(ipv4(dst=to) / tcp(sport=port) / Raw(payload))


def keep(packets: KeptPackets, packet: bytes, *, now: float = 0.0) -> int:
    return packets.keep(memoryview(packet), parsed(packet), now=now)


def test_kept__the_newest_of_each_flow() -> None:
    packets = KeptPackets()
    assert keep(packets, segment(port=1, payload=b"first")) == 0
    assert keep(packets, segment(port=2)) == 0
    assert keep(packets, segment(port=1, payload=b"again")) == 1
    assert packets.take({THERE}, now=1.0) == ([segment(port=2), segment(port=1, payload=b"again")], 0)
    assert len(packets) == 0


def test_kept__tcp_only() -> None:
    packets = KeptPackets()
    assert keep(packets, bytes(ipv4() / udp())) == 1
    assert len(packets) == 0


def test_kept__until_somebody_is_there_for_them() -> None:
    packets = KeptPackets()
    keep(packets, segment(to=V4[1]))
    keep(packets, segment(to="10.88.0.3"))
    assert packets.destinations() == {THERE, ELSEWHERE}
    assert packets.take({ELSEWHERE}, now=0.0) == ([segment(to="10.88.0.3")], 0)
    assert packets.destinations() == {THERE}


def test_kept__not_longer_than_is_of_use() -> None:
    packets = KeptPackets()
    keep(packets, segment(), now=5.0)
    assert packets.take({THERE}, now=5.1 + MAX_AGE_S) == ([], 1)


@given(st.lists(st.tuples(st.integers(1, 2 * MAX_FLOWS), st.integers(0, 60_000)), max_size=40))
def test_kept__within_the_bounds_and_each_is_counted(sent: list[tuple[int, int]]) -> None:
    packets, dropped = KeptPackets(), 0
    for port, size in sent:
        dropped += keep(packets, segment(port=port, payload=bytes(size)))
    frames, _ = packets.take({THERE}, now=0.0)
    assert len(frames) + dropped == len(sent)
    assert len(frames) <= MAX_FLOWS
    assert sum(map(len, frames)) <= MAX_BYTES


def test_kept__no_more_flows_than_it_may() -> None:
    packets = KeptPackets()
    assert sum(keep(packets, segment(port=port)) for port in range(1, MAX_FLOWS + 11)) == 10
    assert len(packets) == MAX_FLOWS
