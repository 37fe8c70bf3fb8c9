"""Plain UDP encapsulation on real sockets of the loopback interface; the other end is a socket, as FOU is one."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.packet import Raw

from srd.tunnel import encapsulation, vnet
from srd.tunnel.allowed import AllowedAddresses
from srd.tunnel.counters import Counters
from srd.tunnel.encapsulation import EachAddress, Encapsulation, Owners
from srd.tunnel.errors import TunnelError
from srd.tunnel.packets import parse_untrusted
from srd.tunnel.vnet import VnetHeader
from tests.patience import PATIENCE_S, until
from tests.srd.tunnel.inner import V4, V6, hostile, ipv4, ipv6, tcp, udp

pytestmark = pytest.mark.root  # SO_RCVBUFFORCE

LOOPBACK = {4: "127.0.0.1", 6: "::1"}
NOTHING_LEFT = vnet.NONE.pack()
OWN = [ipaddress.ip_interface(f"{V4[0]}/24"), ipaddress.ip_interface(f"{V6[0]}/64")]
NETWORKS = [each.network for each in OWN]
DESTINATION = bytes(map(int, V4[1].split(".")))
ALL_TOS = range(256)


def packet(*, tos: int = 0, version: int = 4, source: str | None = None, payload: bytes = b"payload") -> bytes:
    if version == 6:
        return bytes(ipv6(tc=tos, src=source or V6[1], dst=V6[0]) / udp() / Raw(payload))
    return bytes(ipv4(tos=tos, src=source or V4[1], dst=V4[0]) / udp() / Raw(payload))


def answer(*, tos: int = 0, to: str = V4[1], payload: bytes = b"answer") -> bytes:
    return bytes(ipv4(tos=tos, src=V4[0], dst=to) / udp() / Raw(payload))


def udp_socket(family: socket.AddressFamily = socket.AF_INET, host: str = "127.0.0.1") -> socket.socket:
    """The other end, as a plain Linux has it: it tells the TOS."""
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.bind((host, 0))
    sock.settimeout(PATIENCE_S)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    return sock


def send_with_tos(sock: socket.socket, data: bytes, tos: int, address: tuple[str, int]) -> None:
    kind = (
        (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)
        if sock.family == socket.AF_INET6
        else (socket.IPPROTO_IP, socket.IP_TOS)
    )
    sock.sendmsg([data], [(*kind, struct.pack("=i", tos))], 0, address)


def receive_with_tos(sock: socket.socket) -> tuple[bytes, int]:
    data, controls, _, _ = sock.recvmsg(1 << 16, 256)
    ((_, _, tos),) = controls
    return data, tos[0]


@dataclass
class Kernel:
    """Takes what is written."""

    written: list[bytes] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    kept_sent: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, parts: Sequence[memoryview | bytes]) -> str | None:
        header, data = parts
        assert header == NOTHING_LEFT
        self.written.append(bytes(data))
        self.changed.set()
        return None

    def send_kept(self) -> None:
        self.kept_sent += 1

    async def learned(self, times: int) -> None:
        """Wait until it has been learned so many times where packets go."""
        await until(lambda: self.kept_sent >= times)

    async def read(self) -> bytes:
        """Return the next packet."""
        async with asyncio.timeout(PATIENCE_S):
            while not self.written:
                self.changed.clear()
                await self.changed.wait()
        return self.written.pop(0)

    @contextmanager
    def listening(
        self, host: str = "127.0.0.1", *, port: int = 0, owners: Owners | None = None
    ) -> Iterator[Encapsulation]:
        made = Encapsulation.listen(
            (host, port),
            owners=owners or EachAddress(OWN),
            counters=self.counters,
            interface=self,
            on_learned=self.send_kept,
        )
        yield made
        made.close()

    @contextmanager
    def connected(self, address: tuple[str, int]) -> Iterator[Encapsulation]:
        made = Encapsulation.connect(address, networks=NETWORKS, counters=self.counters, interface=self)
        yield made
        made.close()


def send(made: Encapsulation, data: bytes, header: VnetHeader = vnet.NONE) -> int:
    return made.send(memoryview(bytearray(header.pack() + data)), parse_untrusted(data))


def port_of(made: Encapsulation) -> int:
    return int(made.name.rpartition(":")[2])


@pytest.mark.parametrize("version", [4, 6], ids=["over IPv4", "over IPv6"])
@pytest.mark.parametrize("inner", [4, 6], ids=["IPv4", "IPv6"])
async def test_ecn__all_pairs_by_the_table_of_rfc_6040(version: int, inner: int) -> None:
    """RFC 6040, figure 4: rows are the inner codepoint, columns the outer: Not-ECT, ECT(1), ECT(0), CE."""
    table = {0: (0, 0, 0, None), 1: (1, 1, 1, 3), 2: (2, 1, 2, 3), 3: (3, 3, 3, 3)}
    kernel, family = Kernel(), socket.AF_INET6 if version == 6 else socket.AF_INET
    with kernel.listening(LOOPBACK[version]) as made, udp_socket(family, LOOPBACK[version]) as sock:
        for inner_ecn, row in table.items():
            for outer_ecn, ecn in enumerate(row):
                data = packet(tos=0xB8 | inner_ecn, version=inner)
                send_with_tos(sock, data, outer_ecn, (LOOPBACK[version], port_of(made)))
                if ecn is not None:
                    assert await kernel.read() == packet(tos=0xB8 | ecn, version=inner)
    assert kernel.counters.dropped == {"congestion": 1}
    assert kernel.counters.encapsulated_rx_pkts == 15


@pytest.mark.parametrize("version", [4, 6], ids=["over IPv4", "over IPv6"])
async def test_send__ecn_and_dscp_are_copied(version: int) -> None:
    kernel, family = Kernel(), socket.AF_INET6 if version == 6 else socket.AF_INET
    with udp_socket(family, LOOPBACK[version]) as sock, kernel.connected(sock.getsockname()) as made:
        for tos in ALL_TOS:
            for inner in (4, 6):
                data = packet(tos=tos, version=inner)
                assert send(made, data) == 1
                assert receive_with_tos(sock) == (data, tos)


async def test_send__a_super_packet_is_sent_in_segments() -> None:
    payload = bytes(range(256)) * 250
    data = bytes(ipv4(tos=2, dst=V4[1], flags="DF") / tcp(flags="PA") / Raw(payload))
    header = VnetHeader(vnet.NEEDS_CSUM, vnet.GSO_TCPV4, 40, 1000, 20, vnet.TCP_CHECKSUM_AT)
    kernel = Kernel()
    with udp_socket() as sock, kernel.connected(sock.getsockname()) as made:
        assert send(made, data, header) == 64
        parts = [receive_with_tos(sock) for _ in range(64)]
    assert b"".join(part[40:] for part, _ in parts) == payload
    assert {tos for _, tos in parts} == {2}
    assert [len(part) for part, _ in parts] == [1040] * 64
    assert not kernel.counters.dropped


async def test_send__a_checksum_is_completed() -> None:
    data = bytearray(answer())
    whole = bytes(data)
    pseudo_header = (sum(struct.unpack("!4H", data[12:20])) + 17 + len(data) - 20) % 0xFFFF
    data[26:28] = pseudo_header.to_bytes(2, "big")
    with udp_socket() as sock, Kernel().connected(sock.getsockname()) as made:
        send(made, bytes(data), VnetHeader(vnet.NEEDS_CSUM, csum_start=20, csum_offset=vnet.UDP_CHECKSUM_AT))
        assert sock.recv(100) == whole


async def test_connect__takes_nothing_from_other_hosts() -> None:
    kernel = Kernel()
    with udp_socket() as sock, udp_socket(host="127.0.0.2") as other, kernel.connected(sock.getsockname()) as made:
        send(made, answer())
        _, address = sock.recvfrom(100)
        other.sendto(packet(payload=b"forged"), address)
        sock.sendto(packet(payload=b"honest"), address)
        assert b"honest" in await kernel.read()
    assert kernel.counters.encapsulated_rx_pkts == 1


async def test_listen__answers_go_where_the_source_was_last() -> None:
    kernel = Kernel()
    with kernel.listening() as made, udp_socket() as before, udp_socket() as after:
        assert not made.reaches(DESTINATION)
        for sock in (before, after):
            sock.sendto(packet(), ("127.0.0.1", port_of(made)))
            assert await kernel.read() == packet()
            assert made.reaches(DESTINATION)
            assert send(made, answer()) == 1
            assert sock.recv(100) == answer()
        assert kernel.kept_sent == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 - what is tested
async def test_listen__answers_come_from_the_address_that_was_asked(host: str) -> None:
    kernel = Kernel()
    with kernel.listening(host) as made, udp_socket() as sock:
        sock.connect(("127.7.7.7", port_of(made)))
        sock.send(packet(tos=3))
        assert await kernel.read() == packet(tos=3)
        send(made, answer(tos=0x29))
        assert receive_with_tos(sock) == (answer(tos=0x29), 0x29)


async def test_listen__only_from_sources_that_may_be_behind_it() -> None:
    owners = AllowedAddresses[bytes]()
    owners.add(b"key", [ipaddress.ip_network(V4[1]), ipaddress.ip_network("10.1.0.0/16")])
    cases: list[tuple[Owners, list[str]]] = [
        (EachAddress(OWN), [V4[0], "10.89.0.1", "10.1.2.3"]),
        (owners, [V4[0], "10.88.0.3"]),
    ]
    for each, forged in cases:
        kernel = Kernel()
        with kernel.listening(owners=each) as made, udp_socket() as sock:
            for source in (*forged, V4[1]):
                sock.sendto(packet(source=source), ("127.0.0.1", port_of(made)))
            assert await kernel.read() == packet()
        assert kernel.counters.dropped == {"forged_source": len(forged)}


async def test_listen__remembers_no_more_peers_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encapsulation, "MAX_PEERS", 3)
    kernel = Kernel()
    with kernel.listening() as made, udp_socket() as sock:
        for number in (2, 3, 4, 5):
            sock.sendto(packet(source=f"10.88.0.{number}"), ("127.0.0.1", port_of(made)))
            await kernel.read()
        assert [made.reaches(bytes((10, 88, 0, number))) for number in (2, 3, 4, 5)] == [False, True, True, True]


@given(st.lists(hostile, max_size=5))
async def test_listen__hostile_datagrams_are_dropped_and_counted(datagrams: list[bytes]) -> None:
    kernel = Kernel()
    with kernel.listening() as made, udp_socket() as sock:
        for data in (*datagrams, packet(payload=b"last")):
            sock.sendto(data, ("127.0.0.1", port_of(made)))
        while b"last" not in (written := await kernel.read()):
            assert parse_untrusted(written).length == len(written)
    counters = kernel.counters
    assert counters.encapsulated_rx_pkts + counters.dropped.total() == len(datagrams) + 1


async def test_send__an_unreachable_peer_is_counted() -> None:
    kernel = Kernel()
    with udp_socket() as sock, kernel.connected(sock.getsockname()) as made:
        sock.close()
        while not kernel.counters.dropped["unreachable"]:
            send(made, answer())
            await asyncio.sleep(0)


async def test_announce__says_where_its_sources_are_and_is_nothing_to_kernels() -> None:
    here, there = Kernel(), Kernel()
    sources = [ipaddress.ip_address(V4[1]), ipaddress.ip_address(V6[1])]
    with here.listening() as listener, there.connected(("127.0.0.1", port_of(listener))) as client:
        assert not any(listener.reaches(each.packed) for each in sources)
        client.announce(sources)
        await here.learned(len(sources))
        assert all(listener.reaches(each.packed) for each in sources)
        send(listener, answer())
        assert await there.read() == answer()
    assert here.written == []
    assert not here.counters.dropped
    assert here.counters.encapsulated_rx_pkts == there.counters.encapsulated_tx_pkts == 0


async def test_open__a_port_in_use_is_one_line() -> None:
    with udp_socket() as sock, pytest.raises(TunnelError, match=r"--fallback: .*127.0.0.1.*in use"):
        Kernel().listening(port=sock.getsockname()[1]).__enter__()
