"""The kernel as the judge: it takes what is made here, and makes the same segments itself."""

from __future__ import annotations

import random
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from scapy.layers.inet import IP, TCP
from scapy.packet import Packet, Raw

from netns.backends.relay.tap import inside
from srd.tunnel import vnet
from srd.tunnel.packets import InnerPacketError, parse_untrusted
from srd.tunnel.rewrite import packet_too_big
from srd.tunnel.segments import segments
from srd.tunnel.tun import ALL_OFFLOAD, MAX_READ_BYTES, NO_OFFLOAD, Offload, Tun
from srd.tunnel.vnet import VnetHeader
from tests.patience import PATIENCE_S
from tests.srd.tunnel.cable import Cable, namespaces, open_in, set_up_tun
from tests.srd.tunnel.inner import V4, V6, packets
from tests.srd.tunnel.test_segments import HEADERS, offloaded
from tests.srd.tunnel.test_vnet import headers

pytestmark = pytest.mark.root

INET, INET6, STREAM, DGRAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
UDP_SEGMENT = 103
FAMILIES = [pytest.param(INET, V4, id="ipv4"), pytest.param(INET6, V6, id="ipv6")]


class Wire(Cable):
    """Moves packets between two hosts, of which the second one takes them as they are on a wire."""

    def __post_init__(self) -> None:
        self.super_packets: list[VnetHeader] = []
        super().__post_init__()

    def carry(self, data: memoryview, *, here: Tun, there: Tun, queue: int) -> None:
        header = vnet.parse(bytes(data))
        if here is self.ends[1]:
            assert header[:2] == (0, vnet.GSO_NONE), "an interface without offloads"
            super().carry(data, here=here, there=there, queue=queue)
            return
        packet = data[vnet.HEADER_BYTES :]
        inner = parse_untrusted(packet)
        assert vnet.parse_untrusted(bytes(data), packet=inner) == header, "what a kernel writes is accepted as it is"
        assert inner.length == len(packet), "a super-packet has its own length"
        if header.gso_type != vnet.GSO_NONE:
            self.super_packets.append(header)
        for segment in segments(header, packet):
            there.write((vnet.NONE.pack(), segment))


@dataclass
class Hosts:
    """Two namespaces with a TUN interface and a socket each, and the wire between them."""

    netns: list[str]
    sockets: list[socket.socket]
    wire: Wire

    def counters(self, side: int) -> dict[str, int]:
        """Return a host's counters, as /proc/net/snmp and snmp6 have them: Tcp.InErrs, Udp6InErrors."""
        with inside(self.netns[side]):
            lines, lines6 = (Path("/proc/thread-self/net", name).read_text().splitlines() for name in ("snmp", "snmp6"))
        found = {name: int(value) for name, value in map(str.split, lines6)}
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            group, *columns = names.split()
            counts = map(int, values.split()[1:])
            found |= {f"{group[:-1]}.{name}": count for name, count in zip(columns, counts, strict=True)}
        return found


@contextmanager
def hosts(family: socket.AddressFamily, kind: socket.SocketKind, *, offload: Offload) -> Iterator[Hosts]:
    """Give hosts of which the first one's interface has offloads, and the second one's has none."""
    with ExitStack() as undo:
        names = undo.enter_context(namespaces(2))
        tuns, sockets = [], []
        for side, (name, each) in enumerate(zip(names, (offload, NO_OFFLOAD), strict=True)):
            tuns.append(undo.enter_context(open_in(name, offload=each)))
            set_up_tun(name, tuns[-1], f"{V4[side]}/24", f"{V6[side]}/64")
            with inside(name):
                sockets.append(undo.enter_context(socket.socket(family, kind)))
        wire = Wire((tuns[0], tuns[1]))
        undo.callback(wire.close)
        yield Hosts(names, sockets, wire)


def received(sock: socket.socket, count: int) -> bytes:
    sock.settimeout(PATIENCE_S)
    found = bytearray()
    while len(found) < count and (data := sock.recv(1 << 16)):
        found += data
    return bytes(found)


def send_stream(client: socket.socket, server: socket.socket, content: bytes, *, address: str) -> bytes:
    """Send bytes over one TCP connection; return what arrives."""
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
    with hosts(family, STREAM, offload=offload) as made:
        client, server = made.sockets
        assert send_stream(client, server, content, address=addresses[1]) == content
        counters = made.counters(1)
    assert all(header.gso_type & ~vnet.GSO_ECN == kind for header in made.wire.super_packets)
    assert bool(made.wire.super_packets) == (offload == ALL_OFFLOAD)
    for name in ("Tcp.InErrs", "Tcp.InCsumErrors", "Ip.InHdrErrors", "Ip6InHdrErrors", "Ip.InDiscards"):
        assert counters[name] == 0, name


@pytest.mark.parametrize(("family", "addresses"), FAMILIES)
def test_segments__of_datagrams(family: socket.AddressFamily, addresses: tuple[str, str]) -> None:
    content = random.Random(7).randbytes(50 * 1201 + 7)
    with hosts(family, DGRAM, offload=ALL_OFFLOAD) as made:
        sender, receiver = made.sockets
        receiver.bind((addresses[1], 0))
        receiver.settimeout(PATIENCE_S)
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1201)
        sender.sendto(content, (addresses[1], receiver.getsockname()[1]))
        found = [receiver.recv(1 << 16) for _ in range(51)]
        counters = made.counters(1)
    assert [header.gso_type for header in made.wire.super_packets] == [vnet.GSO_UDP_L4]
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
    with namespaces(1) as (name,), open_in(name, offload=NO_OFFLOAD) as tun:
        set_up_tun(name, tun, f"{V4[0]}/24", f"{V6[0]}/64")
        with inside(name):
            sock = socket.socket(family, DGRAM)
        sock.setsockopt(protocol, discover, IP_PMTUDISC_DO)
        sock.connect((addresses[1], 9))
        assert sock.getsockopt(protocol, mtu) == 1500
        sock.send(bytes(1400))
        [sent] = read_from(tun, addresses[0], count=1)
        answer = packet_too_big(sent, mtu=1300, source=ip_address(addresses[1]).packed)
        assert answer is not None
        tun.write((vnet.NONE.pack(), answer))
        assert sock.getsockopt(protocol, mtu) == 1300
        sock.close()


@pytest.fixture(scope="module")
def router() -> Iterator[tuple[Tun, Tun]]:
    """A router between two TUN interfaces. The second one has no offloads, so that the kernel segments for it."""
    with (
        namespaces(1) as (name,),
        open_in(name, "left", offload=ALL_OFFLOAD) as left,
        open_in(name, "right", offload=NO_OFFLOAD) as right,
    ):
        with inside(name):
            for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
                Path("/proc/sys/net", setting).write_text("1\n")
        set_up_tun(name, left, "10.88.0.254/24", "fd88::254/64", mtu=9000)
        set_up_tun(name, right, "10.89.0.254/24", "fd89::254/64", mtu=9000)
        yield left, right


def waiting(tun: Tun) -> list[bytes]:
    """Return the packets that the kernel has handed over."""
    buffer, found = memoryview(bytearray(MAX_READ_BYTES)), list[bytes]()
    while (length := tun.read_into(buffer)) is not None:
        found.append(bytes(buffer[vnet.HEADER_BYTES : length]))
    return found


def read_from(tun: Tun, source: str, *, count: int) -> list[bytes]:
    """Return the next packets of one sender, after waiting for them. The kernel sends others of its own."""
    address, found = ip_address(source).packed, list[bytes]()
    while len(found) < count:
        assert select.select(tun.fds, [], [], PATIENCE_S)[0], f"{len(found)} of {count} packets"
        found += [packet for packet in waiting(tun) if parse_untrusted(packet).source == address]
    return found


def forwarded(router: tuple[Tun, Tun], header: VnetHeader, packet: bytes, *, count: int) -> list[bytes]:
    """What the kernel makes of a super-packet, as the other interface receives it."""
    left, right = router
    left.write((header.pack(), packet))
    return read_from(right, str(ip_address(parse_untrusted(packet).source)), count=count)


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
    assert router[0].write((header.pack(), packet)) is None
    assert segments(header, packet)
    for tun in router:
        waiting(tun)
