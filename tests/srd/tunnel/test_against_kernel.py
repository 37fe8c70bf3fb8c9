"""The kernel as the judge: it takes what is made here, and makes the same segments itself."""

from __future__ import annotations

import random
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from scapy.layers.inet import IP, TCP
from scapy.packet import Packet, Raw
from tests.srd.tunnel.kernel import Host, Tun

from srd.tunnel import vnet
from srd.tunnel.packets import InnerPacketError, parse_untrusted
from srd.tunnel.rewrite import mark_ce, packet_too_big
from srd.tunnel.segments import segments
from srd.tunnel.tun import ALL_OFFLOAD, NO_OFFLOAD, Offload
from srd.tunnel.vnet import VnetHeader
from tests.patience import PATIENCE_S
from tests.srd.tunnel.inner import V4, V6, packets
from tests.srd.tunnel.test_segments import HEADERS, offloaded
from tests.srd.tunnel.test_vnet import headers

pytestmark = pytest.mark.root

INET, INET6, STREAM, DGRAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
UDP_SEGMENT = 103
FAMILIES = [pytest.param(INET, V4, id="ipv4"), pytest.param(INET6, V6, id="ipv6")]
FORWARDING = {"ipv4/ip_forward": 1, "ipv6/conf/all/forwarding": 1}


def host(addresses: tuple[str, str], *, offload: Offload = NO_OFFLOAD) -> Host:
    return Host((Tun("tun0", (f"{addresses[0]}/24", f"{addresses[1]}/64"), offload=offload),))


class Wire(Thread):
    """Moves packets between two hosts, of which the second one takes them as they are on a wire."""

    def __init__(self, left: Tun, right: Tun, *, marks_ce: bool = False) -> None:
        super().__init__()
        self.super_packets: list[VnetHeader] = []
        self.marked = 0
        self.error: BaseException | None = None
        self._left, self._right = left, right
        self._marks_ce = marks_ce
        self._wake, self._woken = socket.socketpair()

    def run(self) -> None:
        try:
            while True:
                ready, _, _ = select.select([self._left.fd, self._right.fd, self._woken.fileno()], [], [])
                if self._woken.fileno() in ready:
                    return
                for data in self._left.read_waiting():
                    self._to_the_right(bytearray(data))
                for data in self._right.read_waiting():
                    assert vnet.parse(data)[:2] == (0, vnet.GSO_NONE), "an interface without offloads"
                    self._left.write(b"", data)
        except BaseException as error:  # noqa: BLE001 - raised again by stop()
            self.error = error

    def _to_the_right(self, data: bytearray) -> None:
        packet = memoryview(data)[vnet.HEADER_BYTES :]
        inner = parse_untrusted(packet)
        header = vnet.parse_untrusted(bytes(data), packet=inner)
        assert header == vnet.parse(bytes(data)), "what a kernel writes is accepted as it is"
        assert inner.length == len(packet), "a super-packet has its own length"
        marked = self._marks_ce and mark_ce(packet)
        found = segments(header, packet)
        self.marked += marked * len(found)
        if header.gso_type != vnet.GSO_NONE:
            self.super_packets.append(header)
        for segment in found:
            self._right.write(vnet.NONE.pack(), segment)

    def stop(self) -> None:
        self._wake.send(b"x")
        self.join(PATIENCE_S)
        self._wake.close()
        self._woken.close()
        if self.error is not None:
            raise self.error


@contextmanager
def joined(left: Host, right: Host, *, marks_ce: bool = False) -> Iterator[Wire]:
    wire = Wire(left.tuns[0], right.tuns[0], marks_ce=marks_ce)
    wire.start()
    try:
        yield wire
    finally:
        wire.stop()


def received(sock: socket.socket, count: int) -> bytes:
    sock.settimeout(PATIENCE_S)
    found = bytearray()
    while len(found) < count and (data := sock.recv(1 << 16)):
        found += data
    return bytes(found)


def send_stream(left: Host, right: Host, content: bytes, *, address: str) -> bytes:
    """Send bytes over one TCP connection; return what arrives."""
    client, server = left.sockets[0], right.sockets[0]
    server.bind((address, 0))
    server.listen()
    client.settimeout(PATIENCE_S)
    client.connect((address, server.getsockname()[1]))
    connection, _ = server.accept()
    sender = Thread(target=client.sendall, args=(content,))
    sender.start()
    with connection:
        found = received(connection, len(content))
    sender.join(PATIENCE_S)
    return found


@pytest.mark.parametrize("offload", [ALL_OFFLOAD, Offload.CHECKSUM, NO_OFFLOAD], ids=["tso", "checksums", "none"])
@pytest.mark.parametrize(("family", "addresses"), FAMILIES)
def test_segments__of_a_tcp_connection(
    family: socket.AddressFamily, addresses: tuple[str, str], offload: Offload
) -> None:
    content = random.Random(7).randbytes(3_000_001)
    kind = vnet.GSO_TCPV4 if family == INET else vnet.GSO_TCPV6
    with (
        host((V4[0], V6[0]), offload=offload).open((family, STREAM)) as left,
        host((V4[1], V6[1])).open((family, STREAM)) as right,
    ):
        with joined(left, right) as wire:
            assert send_stream(left, right, content, address=addresses[1]) == content
        counters = right.counters()
    assert all(header.gso_type & ~vnet.GSO_ECN == kind for header in wire.super_packets)
    assert bool(wire.super_packets) == (offload == ALL_OFFLOAD)
    for name in ("Tcp.InErrs", "Tcp.InCsumErrors", "Ip.InHdrErrors", "Ip6InHdrErrors", "Ip.InDiscards"):
        assert counters[name] == 0, name


@pytest.mark.parametrize(("family", "addresses"), FAMILIES)
def test_segments__of_datagrams(family: socket.AddressFamily, addresses: tuple[str, str]) -> None:
    content = random.Random(7).randbytes(50 * 1201 + 7)
    with (
        host((V4[0], V6[0]), offload=ALL_OFFLOAD).open((family, DGRAM)) as left,
        host((V4[1], V6[1])).open((family, DGRAM)) as right,
    ):
        right.sockets[0].bind((addresses[1], 0))
        left.sockets[0].setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1201)
        with joined(left, right) as wire:
            left.sockets[0].sendto(content, (addresses[1], right.sockets[0].getsockname()[1]))
            right.sockets[0].settimeout(PATIENCE_S)
            found = [right.sockets[0].recv(1 << 16) for _ in range(51)]
        counters = right.counters()
    assert [header.gso_type for header in wire.super_packets] == [vnet.GSO_UDP_L4]
    assert b"".join(found) == content
    assert [len(datagram) for datagram in found] == [1201] * 50 + [7]
    assert counters["Udp.InCsumErrors"] == counters["Udp6InCsumErrors"] == 0


IP_MTU, IP_MTU_DISCOVER, IP_PMTUDISC_DO, IPV6_MTU, IPV6_MTU_DISCOVER = 14, 10, 2, 24, 23


@pytest.mark.parametrize(("family", "addresses"), FAMILIES)
def test_packet_too_big__is_believed_by_the_kernel(family: socket.AddressFamily, addresses: tuple[str, str]) -> None:
    protocol, discover, mtu = (
        (socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_MTU)
        if family == INET
        else (socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_MTU)
    )
    with host((V4[0], V6[0])).open((family, DGRAM)) as left:
        sock, tun = left.sockets[0], left.tuns[0]
        sock.setsockopt(protocol, discover, IP_PMTUDISC_DO)
        sock.connect((addresses[1], 9))
        assert sock.getsockopt(protocol, mtu) == 1500
        sock.send(bytes(1400))
        [sent] = tun.read_from(addresses[0], count=1)
        answer = packet_too_big(sent, mtu=1300, source=ip_address(addresses[1]).packed)
        assert answer is not None
        tun.write(vnet.NONE.pack(), answer)
        assert sock.getsockopt(protocol, mtu) == 1300


@pytest.fixture(scope="module")
def router() -> Iterator[tuple[Tun, Tun]]:
    """A router between two TUN interfaces. The second one has no offloads, so that the kernel segments for it."""
    left = Tun("left", ("10.88.0.254/24", "fd88::254/64"), offload=ALL_OFFLOAD, mtu=9000)
    right = Tun("right", ("10.89.0.254/24", "fd89::254/64"), mtu=9000)
    with Host((left, right), FORWARDING).open():
        yield left, right


def forwarded(router: tuple[Tun, Tun], header: VnetHeader, packet: bytes, *, count: int) -> list[bytes]:
    """What the kernel makes of a super-packet, as the other interface receives it."""
    left, right = router
    left.write(header.pack(), packet)
    return right.read_from(str(ip_address(parse_untrusted(packet).source)), count=count)


def towards_the_right(headers_: Packet, *, hops: int) -> Packet:
    packet = headers_.copy()
    if isinstance(packet, IP):
        packet.dst, packet.ttl = "10.89.0.2", hops
    else:
        packet.dst, packet.hlim = "fd89::2", hops
    return packet


@pytest.mark.parametrize(("payload_bytes", "segment_bytes"), [(1448 * 3, 1448), (4345, 1448), (4000, 1447), (990, 33)])
@pytest.mark.parametrize("name", [name for name in HEADERS if "routing" not in name])
def test_segments__are_the_kernel_s(router: tuple[Tun, Tun], name: str, payload_bytes: int, segment_bytes: int) -> None:
    payload = Raw(bytes(at * at % 251 for at in range(payload_bytes)))
    before, after = (towards_the_right(HEADERS[name], hops=hops) / payload for hops in (64, 63))
    header, data = offloaded(before, segment_bytes=segment_bytes)
    if before.haslayer(TCP) and before[TCP].flags.C:
        header = header._replace(gso_type=header.gso_type | vnet.GSO_ECN)
    expected = segments(*offloaded(after, segment_bytes=segment_bytes))
    assert forwarded(router, header, data, count=len(expected)) == expected


@pytest.mark.parametrize("payload_bytes", [1000, 1001])
@pytest.mark.parametrize("name", [name for name in HEADERS if "routing" not in name])
def test_complete_checksum__is_the_kernel_s(router: tuple[Tun, Tun], name: str, payload_bytes: int) -> None:
    payload = Raw(bytes(at * at % 251 for at in range(payload_bytes)))
    before, after = (towards_the_right(HEADERS[name], hops=hops) / payload for hops in (64, 63))
    assert forwarded(router, *offloaded(before), count=1) == segments(*offloaded(after))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(packet=packets, header=headers)
def test_vnet_parse_untrusted__the_kernel_takes_what_it_accepts(
    router: tuple[Tun, Tun], packet: bytes, header: VnetHeader
) -> None:
    try:
        vnet.parse_untrusted(header.pack(), packet=parse_untrusted(packet))
    except InnerPacketError:
        return
    router[0].write(header.pack(), packet)
    assert segments(header, packet)
    router[0].read_waiting()
    router[1].read_waiting()
