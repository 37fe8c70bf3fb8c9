"""Connection tracking: security groups are stateful, as the answers to what they allow pass. No I/O.

Theory of operation.
1. What a packet belongs to is told by keys: protocol, addresses and ports, with the end first that begins. The packets
   of the other end have the same key with the ends exchanged. Of ICMP an echo request and its reply belong together.
2. A packet that belongs to no flow is judged by the rules, and begins a flow if they allow it. A packet of a flow
   passes without them, in both directions.
3. A TCP packet that opens a connection (SYN without ACK) is never an answer. So whoever was connected to cannot connect
   back to the same port, whether the first connection is still open or not.
4. An ICMP error passes if the packet that it quotes belongs to a flow, of its receiver's (Linux calls it RELATED).
5. A flow was judged by a version of the rules. Under another version it is judged again, as at its beginning, when its
   next packet comes, and ends if it is not allowed any more. AWS lets tracked connections go on; here a rule that is
   withdrawn is withdrawn for what is open, too, as for EFA traffic.
6. A flow ends after some time without packets. The times are AWS's ("Idle connection tracking timeout"), and Linux's
   for TCP connections that were closed.
7. A card that replaces itself hands its flows on (`saved`, `restore`): the end that may only answer could not go on.
8. There are `limit` flows at most. When so many live, nothing new begins, and what is open goes on; ENA's name for it
   is `conntrack_allowance_exceeded`.

Fragments are not put together: those of one protocol between two addresses are a flow, which has no port; only rules
for all ports allow it.

Flows are in a queue for each idle time, the least recently used first: so their order in it is that in which they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from srd.tunnel.packets import (
    FRAGMENT_OFFSET,
    ICMP,
    ICMPV6,
    IPV4_BYTES,
    IPV6_BYTES,
    TCP,
    UDP,
    DropReason,
    InnerPacket,
    InnerPacketError,
)

ESTABLISHED_S: Final = 350.0
OPENING_S: Final = 60.0
"""TCP, while only one end has sent packets."""
CLOSED_S: Final = 10.0
"""TCP, after a RST, or a FIN of each end."""
STREAM_S: Final = 180.0
"""UDP, once both ends have sent packets."""
SINGLE_S: Final = 30.0
"""UDP before that, and all other protocols."""
REFRESH_S: Final = 1.0
"""How exact these times are: a flow is not moved for every packet."""
IDLE_S: Final = (CLOSED_S, SINGLE_S, OPENING_S, STREAM_S, ESTABLISHED_S)

NO_VERSION: Final = 0
"""Of the rules while there are none: no packet is judged then."""

CONNTRACK_EXCEEDED: Final = "conntrack_allowance_exceeded"

_FIN, _SYN, _RST, _ACK = 0x01, 0x02, 0x04, 0x10
_NAMES: Final = {TCP: "tcp", UDP: "udp", ICMP: "icmp", ICMPV6: "icmpv6"}
_ICMP_BYTES: Final = 8
_REQUEST_OF: Final = {ICMP: {0: 8, 14: 13, 16: 15, 18: 17}, ICMPV6: {129: 128}}
"""Types of replies, and of their requests."""
_ERRORS: Final = {ICMP: frozenset((3, 11, 12)), ICMPV6: frozenset((1, 2, 3, 4))}
_NO_PORTS: Final = bytes(4)


class Begin(NamedTuple):
    """What rules are asked for."""

    is_outbound: bool
    """Whether the interface that has the rules begins; else its peer."""
    peer: bytes
    """The peer's address, 4 or 16 bytes."""
    protocol: str
    """As in rules: tcp, udp, icmp, icmpv6; others have their number, which only rules for all allow."""
    port: int | None
    """The destination's, or the type of icmp and icmpv6. None: a fragment's, or of a protocol that has none."""


class Tracked(NamedTuple):
    """What is read of a packet."""

    key: bytes | None
    """Of the flow that it begins, or goes on with as its beginner; None: it begins none."""
    answers: tuple[bytes, ...]
    """Keys of the flows that it may be an answer to."""
    protocol: str
    port: int | None
    tcp_flags: int = 0


class SavedFlow(NamedTuple):
    """A flow for another process."""

    key: bytes
    begin: Begin
    idle_s: float
    age_s: float
    """Since its last packet."""
    is_answered: bool
    fins: int


@dataclass(slots=True)
class _Flow:
    begin: Begin
    version: int
    used_at: float
    idle_s: float
    is_answered: bool = False
    fins: int = 0
    """1: its beginner's, 2: the other end's."""


def read_untrusted(inner: InnerPacket, packet: memoryview | bytes) -> Tracked:
    """Return what a packet belongs to. Raises InnerPacketError for one that ends before its ICMP header.

    `inner` is what `srd.tunnel.packets.parse_untrusted` has found in `packet`, which holds all headers.
    """
    protocol, source, destination = inner.protocol, inner.source, inner.destination
    name = _NAMES.get(protocol, str(protocol))
    if inner.is_fragment:
        return _both_ways(b"f", protocol, source, destination, _NO_PORTS, name=name, port=None)
    at = inner.header_bytes
    if protocol in (TCP, UDP):
        ports = bytes(packet[at : at + 4])
        flags = packet[at + 13] if protocol == TCP else 0
        port = ports[2] << 8 | ports[3]
        return _both_ways(b"", protocol, source, destination, ports, name=name, port=port, tcp_flags=flags)
    if protocol in (ICMP, ICMPV6):
        if at + _ICMP_BYTES > min(inner.length, len(packet)):
            raise InnerPacketError("an ICMP packet without its header", reason=DropReason.TRUNCATED)
        return _icmp_untrusted(inner, packet, name=name)
    return _both_ways(b"", protocol, source, destination, _NO_PORTS, name=name, port=None)


def _both_ways(
    mark: bytes,
    protocol: int,
    source: bytes,
    destination: bytes,
    ports: bytes,
    *,
    name: str,
    port: int | None,
    tcp_flags: int = 0,
) -> Tracked:
    key = b"%b%c%b%b%b" % (mark, protocol, source, destination, ports)
    answered = b"%b%c%b%b%b%b" % (mark, protocol, destination, source, ports[2:], ports[:2])
    return Tracked(key, (answered,), name, port, tcp_flags)


def _icmp_untrusted(inner: InnerPacket, packet: memoryview | bytes, *, name: str) -> Tracked:
    protocol, at = inner.protocol, inner.header_bytes
    kind = packet[at]
    if kind in _ERRORS[protocol]:
        return Tracked(None, _quoted_untrusted(bytes(packet[at + _ICMP_BYTES : inner.length]), inner), name, kind)
    identifier = bytes(packet[at + 4 : at + 6])
    request = _REQUEST_OF[protocol].get(kind)
    if request is not None:
        answered = b"%c%b%b%c%b" % (protocol, inner.destination, inner.source, request, identifier)
        return Tracked(None, (answered,), name, kind)
    key = b"%c%b%b%c%b" % (protocol, inner.source, inner.destination, kind, identifier)
    return Tracked(key if kind in _REQUEST_OF[protocol].values() else None, (), name, kind)


def _quoted_untrusted(quoted: bytes, error: InnerPacket) -> tuple[bytes, ...]:
    """Return the keys of the flow that an ICMP error quotes a packet of; none if there is none that can be told.

    The quoted packet is cut, so only its first bytes are looked at. It was sent by whom the error is for, to whom the
    error is from: between two interfaces of a VPC there is no router.
    """
    if error.version == 4:
        if len(quoted) < IPV4_BYTES or quoted[0] >> 4 != 4:
            return ()
        at, protocol = (quoted[0] & 0xF) * 4, quoted[9]
        source, destination = quoted[12:16], quoted[16:20]
        is_first = not int.from_bytes(quoted[6:8], "big") & FRAGMENT_OFFSET
    else:
        if len(quoted) < IPV6_BYTES or quoted[0] >> 4 != 6:
            return ()
        at, protocol = IPV6_BYTES, quoted[6]
        source, destination = quoted[8:24], quoted[24:40]
        is_first = True
    if (source, destination) != (error.destination, error.source) or not is_first or len(quoted) < at + _ICMP_BYTES:
        return ()
    if protocol in (TCP, UDP):
        ports = quoted[at : at + 4]
        both = _both_ways(b"", protocol, source, destination, ports, name="", port=None)
        return (both.key or b"", *both.answers)
    if protocol == error.protocol:  # an echo request
        return (b"%c%b%b%c%b" % (protocol, source, destination, quoted[at], quoted[at + 4 : at + 6]),)
    return ()


class FlowTable:
    """The flows of one interface: `refusal` for each of its packets, in both directions. `now` never decreases."""

    def __init__(self, *, limit: int, judge: Callable[[Begin], str | None]) -> None:
        """`judge` returns why a flow may not begin now, None: it may."""
        self._limit = limit
        self._judge = judge
        self._flows: dict[bytes, _Flow] = {}
        self._queues: dict[float, dict[bytes, _Flow]] = {idle_s: {} for idle_s in IDLE_S}

    def __len__(self) -> int:
        """Flows, with those that have ended unnoticed."""
        return len(self._flows)

    def saved(self, *, now: float) -> list[SavedFlow]:
        """Return the flows that live, for `restore`."""
        self._expire(now)
        return [
            SavedFlow(key, flow.begin, flow.idle_s, now - flow.used_at, flow.is_answered, flow.fins)
            for queue in self._queues.values()
            for key, flow in queue.items()
        ]

    def restore(self, flows: Iterable[SavedFlow], *, now: float) -> None:
        """Go on with the flows of a process before, as many as fit. Each is judged again with its next packet."""
        for each in flows:
            if len(self._flows) >= self._limit:
                break
            if each.idle_s not in self._queues:
                continue  # of a version with other times
            flow = _Flow(each.begin, NO_VERSION, now - each.age_s, each.idle_s, each.is_answered, each.fins)
            self._flows[each.key] = self._queues[each.idle_s][each.key] = flow

    def refusal(self, packet: Tracked, *, is_outbound: bool, peer: bytes, version: int, now: float) -> str | None:
        """Return why a packet may not pass; None: it may. `peer`: the other end's address; `version`: of the rules."""
        key = packet.key
        if key is not None and (flow := self._live(key, version=version, now=now)) is not None:
            if not (flow.idle_s == CLOSED_S and _opens(packet)):
                self._touch(key, flow, packet=packet, is_answer=False, now=now)
                return None
            self._end(key, flow)
        if not _opens(packet):
            for answered in packet.answers:
                if (flow := self._live(answered, version=version, now=now)) is not None:
                    self._touch(answered, flow, packet=packet, is_answer=True, now=now)
                    return None
        begin = Begin(is_outbound, peer, packet.protocol, packet.port)
        if (reason := self._judge(begin)) is not None or key is None:
            return reason
        return self._begin(key, begin, packet=packet, version=version, now=now)

    def _live(self, key: bytes, *, version: int, now: float) -> _Flow | None:
        """Return a flow that has not ended, and is allowed by these rules."""
        flow = self._flows.get(key)
        if flow is None:
            return None
        if now >= flow.used_at + flow.idle_s or (flow.version != version and self._judge(flow.begin) is not None):
            self._end(key, flow)
            return None
        flow.version = version
        return flow

    def _begin(self, key: bytes, begin: Begin, *, packet: Tracked, version: int, now: float) -> str | None:
        if len(self._flows) >= self._limit:
            self._expire(now)
            if len(self._flows) >= self._limit:
                return CONNTRACK_EXCEEDED
        idle_s = OPENING_S if packet.protocol == "tcp" else SINGLE_S
        flow = self._flows[key] = self._queues[idle_s][key] = _Flow(begin, version, now, idle_s)
        self._touch(key, flow, packet=packet, is_answer=False, now=now)
        return None

    def _touch(self, key: bytes, flow: _Flow, *, packet: Tracked, is_answer: bool, now: float) -> None:
        """Note a packet of a flow."""
        if packet.key is None and flow.begin.protocol != packet.protocol:
            return  # an ICMP error, which is no sign of life
        flow.is_answered |= is_answer
        idle_s = flow.idle_s
        if flow.begin.protocol == "tcp":
            idle_s = self._tcp_idle_s(flow, packet.tcp_flags, is_answer=is_answer)
        elif flow.begin.protocol == "udp" and flow.is_answered:
            idle_s = STREAM_S
        if idle_s != flow.idle_s or now >= flow.used_at + REFRESH_S:
            del self._queues[flow.idle_s][key]
            flow.idle_s, flow.used_at = idle_s, now
            self._queues[idle_s][key] = flow

    def _tcp_idle_s(self, flow: _Flow, flags: int, *, is_answer: bool) -> float:
        if flags & _FIN:
            flow.fins |= 2 if is_answer else 1
        if flow.idle_s == CLOSED_S or flags & _RST or flow.fins == 3:
            return CLOSED_S
        return ESTABLISHED_S if flow.is_answered else OPENING_S

    def _expire(self, now: float) -> None:
        """End the flows whose time is over."""
        for idle_s, queue in self._queues.items():
            while queue:
                key, flow = next(iter(queue.items()))
                if now < flow.used_at + idle_s:
                    break
                self._end(key, flow)

    def _end(self, key: bytes, flow: _Flow) -> None:
        del self._flows[key], self._queues[flow.idle_s][key]


def _opens(packet: Tracked) -> bool:
    """Whether it is a TCP packet that opens a connection."""
    return packet.tcp_flags & (_SYN | _ACK) == _SYN
