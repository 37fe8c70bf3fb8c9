"""The way around SRD: each IP packet is the payload of one UDP datagram, and nothing else.

The first four bits of a datagram are the IP version. That is variant 1 of GUE (draft-ietf-intarea-gue, section 4), and
what Linux has as FOU (`ip fou add port 19881 ipproto 4`, 41 for IPv6) and GUE. So the other end is an `srd tunnel`, or
a plain Linux.

Rules.
1. Nothing is encrypted or authenticated. A datagram is taken if the source of its packet may be behind this end at all,
   and the answers go to where the last datagram of that source came from. Whoever can send datagrams here can claim
   such a source. Hence both ends have to be told to do this, and what has an SRD peer is sent over SRD.
2. One packet is one datagram. The outer header has the DSCP of the inner one, and its ECN bits, and what leaves here
   has the outer header's mark (RFC 6040: normal mode, figure 4). The kernels count hops, as with SRD.
3. Datagrams are not fragmented (RFC 8900). A packet that is too long for the path is answered with an ICMP error; an
   IPv4 packet that may be fragmented is fragmented itself.
4. Segments of a super-packet are one system call (UDP_SEGMENT), where kernel and device have that.
5. A peer's outer address is remembered: of `MAX_PEERS` at most, and then of those that changed last.
6. An empty packet is an IP header alone whose next header is none (59). It says where its source is, and keeps a NAT's
   mapping alive; no kernel gets it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from netns.base.addresses import host_port_text
from srd.io import syscalls
from srd.io.syscalls import Address
from srd.tunnel import vnet
from srd.tunnel.allowed import AllowedAddresses, host_network
from srd.tunnel.counters import Counters
from srd.tunnel.errors import TunnelError
from srd.tunnel.greeting import Address as InnerAddress
from srd.tunnel.greeting import Network, OwnAddress
from srd.tunnel.packets import NO_NEXT_HEADER, InnerPacket, InnerPacketError, parse_untrusted
from srd.tunnel.rewrite import CE, apply_outer_ecn, empty_packet, outer_tos, packet_too_big
from srd.tunnel.segments import complete_checksum, fragments, segments

MAX_PEERS: Final = 4096
"""Peers whose outer address is remembered."""
DATAGRAMS_PER_TURN: Final = 64
"""Datagrams that are read before the event loop looks at other descriptors."""
BUFFER_BYTES: Final = 4 << 20
"""Of the socket: as Linux' largest TCP send buffer (net.ipv4.tcp_wmem). There is no queue here but this one."""
MAX_DATAGRAM_BYTES: Final = 65_535
MAX_SEGMENTS: Final = 64
"""Datagrams of one system call (UDP_MAX_SEGMENTS of linux/udp.h, before Linux 6.8)."""
MAX_SEGMENTS_BYTES: Final = 65_000
"""And bytes of them: headers of IP and UDP are added, and the sum has 16 bits."""
MIN_MTU: Final = {4: 68, 6: 1280}
"""The least that an ICMP error may name (RFC 791, RFC 8200)."""

IP_PMTUDISC_DO: Final = 2  # linux/in.h
IP_PKTINFO: Final = 8
_IN_PKTINFO: Final = struct.Struct("=I4s4s")
_IN6_PKTINFO: Final = struct.Struct("=16sI")
_CONTROL_BYTES: Final = 256
_MAPPED: Final = "::ffff:"
_LISTENER: Final = "listener"
"""The owner of all that is behind a listener."""
_NO_SEGMENTS: Final = frozenset({errno.EMSGSIZE, errno.EINVAL, errno.EIO})
"""How sending segments ends where the kernel wants them one by one: they are too long, or it cannot do it."""

Control = tuple[int, int, bytes]
"""A control message of the socket module: level, type, data."""


class Owners(Protocol):
    """Who may be behind this end."""

    def find(self, address: bytes) -> Hashable | None:
        """Return which peer an inner address belongs to; None: it is nobody's."""


class PacketSink(Protocol):
    """What is needed of the gateway."""

    def write(self, parts: Sequence[memoryview | bytes]) -> str | None:
        """Give a packet to the kernel; return why it refuses, None: it has taken it."""


class Outer(NamedTuple):
    """Where datagrams for a peer go."""

    address: Address | None
    """None: the socket is connected."""
    controls: tuple[Control, ...]
    """The own address that the peer knows."""
    version: int
    """Of the outer IP."""

    @property
    def overhead_bytes(self) -> int:
        """Of the outer headers."""
        return 28 if self.version == 4 else 48


class EachAddress:
    """Owners where nobody has said which address is whose: each address of the interface's networks is a peer."""

    def __init__(self, own: Sequence[OwnAddress]) -> None:
        self._inside = AllowedAddresses[bool]()
        self._inside.add(True, [each.network for each in own])  # noqa: FBT003 - the value that is found
        self._inside.add(False, [host_network(each.ip) for each in own])  # noqa: FBT003

    def find(self, address: bytes) -> bytes | None:
        """Return the address itself, if it may be a peer's."""
        return address if self._inside.find(address) else None


class Encapsulation:
    """One UDP socket that carries inner packets."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        owners: Owners,
        listener: Hashable | None,
        counters: Counters,
        interface: PacketSink,
        on_learned: Callable[[], None],
    ) -> None:
        """Take over the socket; see `listen` and `connect`.

        `listener`: the owner that a connected socket leads to; None: the socket takes datagrams from everywhere.
        `on_learned` is called when it has become known, or has changed, where packets to an owner go.
        """
        self.is_active = listener is None
        """Whether packets take this way that could go over SRD: a listener's, whenever they have no SRD peer."""
        self._sock = sock
        self._owners = owners
        self._learns = listener is None
        self._outers: dict[Hashable, Outer] = {}
        if listener is not None:
            self._outers[listener] = Outer(None, (), _version(sock.getpeername()))
        self._counters = counters
        self._interface = interface
        self._on_learned = on_learned
        self._has_segments = True
        self._buffer = memoryview(bytearray(MAX_DATAGRAM_BYTES))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._on_readable)

    @classmethod
    def listen(
        cls,
        address: tuple[str, int],
        *,
        owners: Owners,
        counters: Counters,
        interface: PacketSink,
        on_learned: Callable[[], None],
    ) -> Encapsulation:
        """Take datagrams at an address. Raises TunnelError."""
        sock = _opened(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, address, act=socket.socket.bind)
        return cls(sock, owners=owners, listener=None, counters=counters, interface=interface, on_learned=on_learned)

    @classmethod
    def connect(
        cls,
        address: Address,
        *,
        networks: Iterable[Network],
        counters: Counters,
        interface: PacketSink,
    ) -> Encapsulation:
        """Exchange datagrams with one address, which `networks` are behind. Raises TunnelError."""
        owners = AllowedAddresses[str]()
        owners.add(_LISTENER, networks)
        sock = _opened(socket.AF_INET if len(address) == 2 else socket.AF_INET6, address, act=socket.socket.connect)
        return cls(sock, owners=owners, listener=_LISTENER, counters=counters, interface=interface, on_learned=_ignore)

    @property
    def name(self) -> str:
        """HOST:PORT: of the other end, or where a listener is."""
        return host_port_text(*(self._sock.getsockname() if self._learns else self._sock.getpeername())[:2])

    @property
    def host(self) -> str:
        """Where a connected socket leads."""
        return str(self._sock.getpeername()[0])

    def announce(self, sources: Iterable[InnerAddress]) -> None:
        """Send an empty packet of each of these inner addresses to the listener that a connected socket leads to."""
        for source in sources:
            self._send_datagrams([empty_packet(source.packed)], self._outers[_LISTENER])  # else the next one will do

    def close(self) -> None:
        """Close the socket."""
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    # -- to the network -----------------------------------------------------------------------------------------------

    def reaches(self, destination: bytes) -> bool:
        """Whether it is known where packets to an inner address go."""
        return self._owners.find(destination) in self._outers

    def send(self, frame: memoryview, inner: InnerPacket) -> int:
        """Send a packet that was read from the interface; return how many were sent, a super-packet's segments.

        `frame`: virtio's header and the packet, which may be changed. Its destination is one that this `reaches`.
        """
        outer = self._outers[self._owners.find(inner.destination)]
        header, packet = vnet.parse(frame), frame[vnet.HEADER_BYTES :][: inner.length]
        if header.gso_type != vnet.GSO_NONE:
            return self._send_segments(segments(header, packet), outer)
        complete_checksum(header, packet)
        return self._send_one(packet, outer)

    def _send_segments(self, pieces: Sequence[bytes], outer: Outer) -> int:
        """Send segments, which have the same length, but for the last."""
        size = len(pieces[0])
        most = min(MAX_SEGMENTS, MAX_SEGMENTS_BYTES // size) if self._has_segments else 1
        sent = 0
        for begin in range(0, len(pieces), most):
            group = pieces[begin : begin + most]
            if len(group) > 1:
                code = self._send_datagrams(group, outer, segment_bytes=size)
                if code not in _NO_SEGMENTS:
                    sent += self._counted(len(group), code)
                    continue
                self._has_segments &= code != errno.EIO
            sent += sum(self._send_one(piece, outer) for piece in group)
        return sent

    def _send_one(self, packet: memoryview | bytes, outer: Outer) -> int:
        code = self._send_datagrams([packet], outer)
        return self._too_long(packet, outer) if code == errno.EMSGSIZE else self._counted(1, code)

    def _counted(self, packets: int, code: int) -> int:
        """Return how many packets were sent; count them if an error says that they were not."""
        if not code:
            return packets
        self._counters.dropped["socket_full" if code in (errno.EAGAIN, errno.ENOBUFS) else "unreachable"] += packets
        return 0

    def _send_datagrams(self, pieces: Sequence[memoryview | bytes], outer: Outer, *, segment_bytes: int = 0) -> int:
        """Send one datagram, or several of `segment_bytes`; return the error's number, 0 if there is none."""
        tos = outer_tos(pieces[0])
        controls = [*outer.controls, _traffic_class(tos, version=outer.version)]
        if segment_bytes:
            controls.append((socket.SOL_UDP, syscalls.UDP_SEGMENT, struct.pack("=H", segment_bytes)))
        try:
            self._sock.sendmsg(pieces, controls, 0, outer.address)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def _too_long(self, packet: memoryview | bytes, outer: Outer) -> int:
        """Answer a packet that is too long for the path, or send it in fragments; return how many were sent."""
        mtu = min(self._path_mtu(outer), MAX_DATAGRAM_BYTES) - outer.overhead_bytes
        inner = parse_untrusted(packet)
        if pieces := fragments(packet, inner, mtu=mtu):
            codes = [self._send_datagrams([piece], outer) for piece in pieces]
            return self._counted(1, next(filter(None, codes), 0))
        self._counters.dropped["too_long"] += 1
        if mtu >= MIN_MTU[inner.version]:
            answer = packet_too_big(packet, mtu=mtu, source=inner.destination)
            if answer is not None:
                self._interface.write((vnet.NOTHING_LEFT, answer))
        return 0

    def _path_mtu(self, outer: Outer) -> int:
        """Ask the kernel, which has the answers of routers; a socket that is not connected has no single path."""
        if outer.address is None:
            return _mtu_of(self._sock, version=outer.version)
        with socket.socket(self._sock.family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(outer.address)
                return _mtu_of(probe, version=outer.version)
            except OSError:  # there is no route any more
                return 0

    # -- from the network ---------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        for _ in range(DATAGRAMS_PER_TURN):
            try:
                length, controls, _, address = self._sock.recvmsg_into([self._buffer], _CONTROL_BYTES)
            except BlockingIOError:
                return
            except OSError:  # an ICMP error, which an earlier datagram has met
                continue
            self._arrived_untrusted(self._buffer[:length], controls, address)

    def _arrived_untrusted(self, packet: memoryview, controls: list[Control], address: Address) -> None:
        """Hand a packet to the kernel."""
        dropped = self._counters.dropped
        try:
            inner = parse_untrusted(packet)
        except InnerPacketError as error:
            dropped[error.reason] += 1
            return
        owner = self._owners.find(inner.source)
        if owner is None:
            dropped["forged_source"] += 1
            return
        if self._learns:
            self._learn(owner, address, controls)
        if inner.protocol == NO_NEXT_HEADER and inner.length == inner.header_bytes:
            return
        packet = packet[: inner.length]
        if not apply_outer_ecn(packet, _received_tos(controls) & CE):
            dropped["congestion"] += 1
            return
        self._counters.encapsulated_rx_pkts += 1
        refusal = self._interface.write((vnet.NOTHING_LEFT, packet))
        if refusal is not None:
            dropped[refusal] += 1

    def _learn(self, owner: Hashable, address: Address, controls: list[Control]) -> None:
        known = self._outers.get(owner)
        local = tuple(filter(None, map(_answered_from, controls)))
        if known is not None and known.address == address and known.controls == local:
            return
        self._outers.pop(owner, None)
        if len(self._outers) >= MAX_PEERS:
            del self._outers[next(iter(self._outers))]
        self._outers[owner] = Outer(address, local, _version(address))
        self._on_learned()


def _ignore() -> None:
    """Do nothing: where packets go is known from the beginning."""


def _opened(
    family: socket.AddressFamily, address: Address, *, act: Callable[[socket.socket, Address], None]
) -> socket.socket:
    """Return a non-blocking socket that tells each datagram's TOS and own address, and sets DF."""
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        for name in (syscalls.SO_SNDBUFFORCE, syscalls.SO_RCVBUFFORCE):  # who has a tunnel has CAP_NET_ADMIN
            sock.setsockopt(socket.SOL_SOCKET, name, BUFFER_BYTES)
        for option, value in ((syscalls.IP_MTU_DISCOVER, IP_PMTUDISC_DO), (socket.IP_RECVTOS, 1), (IP_PKTINFO, 1)):
            sock.setsockopt(socket.IPPROTO_IP, option, value)  # an IPv6 socket carries IPv4, too
        if family == socket.AF_INET6:
            for option, value in (
                (syscalls.IPV6_MTU_DISCOVER, IP_PMTUDISC_DO),
                (socket.IPV6_RECVTCLASS, 1),
                (socket.IPV6_RECVPKTINFO, 1),
            ):
                sock.setsockopt(socket.IPPROTO_IPV6, option, value)
        act(sock, address)
    except OSError as error:
        sock.close()
        where = host_port_text(*address[:2])
        raise TunnelError(f"--fallback: plain UDP at {where}: {error.strerror}; it is the port behind SRD's") from error
    return sock


def _version(address: Address) -> int:
    """Return the IP version of a socket's address; an IPv6 socket has IPv4 addresses, too."""
    return 4 if len(address) == 2 or address[0].startswith(_MAPPED) else 6


def _traffic_class(tos: int, *, version: int) -> Control:
    if version == 4:
        return socket.IPPROTO_IP, socket.IP_TOS, struct.pack("=i", tos)
    return socket.IPPROTO_IPV6, socket.IPV6_TCLASS, struct.pack("=i", tos)


def _received_tos(controls: list[Control]) -> int:
    for level, kind, data in controls:
        if (level, kind) in ((socket.IPPROTO_IP, socket.IP_TOS), (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)):
            return data[0] if len(data) == 1 else int(struct.unpack("=i", data[:4])[0])
    return 0


def _answered_from(control: Control) -> Control | None:
    """Return what makes an answer come from the address that a datagram came to; None: it says something else."""
    level, kind, data = control
    if (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):
        _, own, _ = _IN_PKTINFO.unpack(data)
        return level, kind, _IN_PKTINFO.pack(0, own, bytes(4))
    if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
        own, interface = _IN6_PKTINFO.unpack(data)
        is_link_local = own[0] == 0xFE and own[1] & 0xC0 == 0x80
        return level, kind, _IN6_PKTINFO.pack(own, interface if is_link_local else 0)
    return None


def _mtu_of(sock: socket.socket, *, version: int) -> int:
    if version == 4:
        return sock.getsockopt(socket.IPPROTO_IP, syscalls.IP_MTU)
    return sock.getsockopt(socket.IPPROTO_IPV6, syscalls.IPV6_MTU)
