"""Find the spine of each source port by measurement: with probes whose TTL expires there.

The TTL of a probe, a UDP datagram, is the number of hops to the spines, so it expires at the spine to which its flow is
routed. The ICMP error (time exceeded) contains one of that router's addresses; `IP_RECVERR` queues it at the socket,
and so at the source port, that sent the probe (ip(7)). Each port is probed several times: a port that finds two spines
is not stable, and then a path is not identified by a source port.

Sockets are not connected: docs/fabric.md has the effect of hash policy 1 on connected ones.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from netns.backends.kernel.netlink import in_namespace
from netns.errors import BackendError
from netns.lab.lab import Lab
from netns.topology.addressing import IpVersion
from netns.topology.model import Topology

FIRST_PORT: Final = 49152  # the dynamic range of RFC 6335
MAX_PORTS: Final = 65536 - FIRST_PORT
PROBE_PORT: Final = 33434  # traceroute's
ROUNDS: Final = 3
TRIES: Final = 3  # of each port in each round, because probes and replies may be lost
BATCH: Final = 8  # probes in flight: fewer than the shortest sensible queue holds
PATIENCE_SECONDS: Final = 0.1  # timeout of a reply, beyond the delay of the links

_EXTENDED_ERROR: Final = struct.Struct("=IBBBBII")  # errno, origin, type, code, pad, info, data; the offender follows


@dataclass(frozen=True, slots=True)
class _Ip:
    """Differences between the versions of IP: linux/in.h, in6.h, errqueue.h, icmp.h, icmpv6.h."""

    family: socket.AddressFamily
    level: int
    recverr: int
    hop_limit: int
    """The option that sets the TTL of sent packets."""

    time_exceeded: tuple[int, int]
    """Origin and ICMP type."""

    offender: struct.Struct
    """struct sockaddr_in or sockaddr_in6, up to the address."""


_IP: Final[dict[IpVersion, _Ip]] = {
    4: _Ip(socket.AF_INET, socket.IPPROTO_IP, 11, socket.IP_TTL, (2, 11), struct.Struct("=H2x4s")),
    6: _Ip(socket.AF_INET6, socket.IPPROTO_IPV6, 25, socket.IPV6_UNICAST_HOPS, (3, 3), struct.Struct("=H6x16s")),
}


@dataclass(frozen=True, slots=True)
class SpineMap:
    """The spines found for each source port of one direction."""

    source: str
    destination: str
    spines: tuple[str, ...]
    """All spines."""

    seen: Mapping[int, tuple[str, ...]]
    """Source port -> the spines that replied to its probes, one a round; fewer if replies are missing."""

    version: IpVersion = 4

    @property
    def label(self) -> str:
        """What was probed, for people."""
        return f"{self.source} to {self.destination}" + (" over IPv6" if self.version == 6 else "")

    @property
    def shares(self) -> Mapping[str, float]:
        """Spine -> its fraction of the stable ports."""
        counts = Counter(names[0] for names in self.seen.values() if len(set(names)) == 1)
        total = max(1, counts.total())
        return {spine: counts[spine] / total for spine in self.spines}

    @property
    def unstable(self) -> tuple[int, ...]:
        """Ports that found more than one spine."""
        return tuple(port for port, names in self.seen.items() if len(set(names)) > 1)

    @property
    def unanswered(self) -> tuple[int, ...]:
        """Ports whose probes had no reply."""
        return tuple(port for port, names in self.seen.items() if not names)

    @property
    def problems(self) -> list[str]:
        """Return the problems of this direction, one line each."""
        label = self.label
        found = [f"{label}: {spine} is never used" for spine, share in self.shares.items() if share == 0]
        if self.unstable:
            found.append(f"{label}: {_ports(self.unstable)}: not always the same spine")
        if self.unanswered:
            found.append(f"{label}: {_ports(self.unanswered)}: no answer")
        return found


def probe_spines(lab: Lab, *, source: str, destination: str, ports: int, version: IpVersion = 4) -> SpineMap:
    """Send from `ports` source ports of `source` to `destination`'s main address, and find the spine of each.

    Raises TopologyError for an unknown host or a version of IP that the lab does not have, BackendError if no spine
    lies between the hosts.
    """
    topology = lab.topology
    for host in (source, destination):
        topology.switch_of(host)
    ttl = hops_to_spines(topology, source=source, destination=destination)
    if ttl is None:
        raise BackendError(f"{source} and {destination}: no spine lies between them; name hosts that are further apart")
    target, address = (lab.address(destination, version=version), PROBE_PORT), lab.address(source, version=version)
    sockets = in_namespace(lab.netns(source), lambda: _sockets(address, ip=_IP[version], ports=ports, ttl=ttl))
    try:
        rounds = [_probe(sockets, target, timeout_s=_timeout_s(topology, hops=ttl)) for _ in range(ROUNDS)]
    finally:
        for prober in sockets.values():
            prober.close()
    owner = lab.addressing(version).owner
    seen = {
        port: tuple(owner(answers[port]) or answers[port] for answers in rounds if port in answers) for port in sockets
    }
    return SpineMap(source=source, destination=destination, spines=topology.spines, seen=seen, version=version)


def hops_to_spines(topology: Topology, *, source: str, destination: str) -> int | None:
    """Return the TTL that expires at the spines between two hosts; None if no shortest path crosses a spine."""
    from_source, from_destination = (
        topology.distances(source),
        topology.distances(destination),
    )
    length = from_source[destination]
    hops = {from_source[spine] for spine in topology.spines if from_source[spine] + from_destination[spine] == length}
    return min(hops, default=None)


def _timeout_s(topology: Topology, *, hops: int) -> float:
    """Return the timeout for a reply from `hops` links away."""
    shapes = [shape for link in topology.links for shape in (link.shape_ab, link.shape_ba) if shape is not None]
    slowest_us = max((shape.delay_us + shape.jitter_us for shape in shapes), default=0)
    return PATIENCE_SECONDS + 2 * hops * slowest_us / 1e6


def _sockets(address: str, *, ip: _Ip, ports: int, ttl: int) -> dict[int, socket.socket]:
    """Open one unconnected socket for each source port; BackendError if a port is in use."""
    opened: dict[int, socket.socket] = {}
    try:
        for port in range(FIRST_PORT, FIRST_PORT + ports):
            prober = opened[port] = socket.socket(ip.family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            prober.setsockopt(ip.level, ip.recverr, 1)
            prober.setsockopt(ip.level, ip.hop_limit, ttl)
            prober.bind((address, port))
    except OSError as error:
        for prober in opened.values():
            prober.close()
        raise BackendError(f"{address}: port {port}: {error.strerror}") from None
    return opened


def _probe(sockets: Mapping[int, socket.socket], target: tuple[str, int], *, timeout_s: float) -> dict[int, str]:
    """Run one round: port -> the address that replied. Each port is tried up to TRIES times."""
    answers: dict[int, str] = {}
    for _ in range(TRIES):
        unanswered = [port for port in sockets if port not in answers]
        for start in range(0, len(unanswered), BATCH):
            batch = {port: sockets[port] for port in unanswered[start : start + BATCH]}
            answers |= _probe_batch(batch, target, timeout_s=timeout_s)
    return answers


def _probe_batch(batch: Mapping[int, socket.socket], target: tuple[str, int], *, timeout_s: float) -> dict[int, str]:
    """Send one probe from each port, and collect the replies until the timeout."""
    answers: dict[int, str] = {}
    port_of = {prober.fileno(): port for port, prober in batch.items()}
    poll = select.poll()
    for prober in batch.values():
        poll.register(prober, 0)  # POLLERR is always reported, and sufficient
        _send(prober, target)
    give_up_at = time.monotonic() + timeout_s
    while len(answers) < len(batch) and (left := give_up_at - time.monotonic()) > 0:
        for fd, _ in poll.poll(left * 1000):
            port = port_of[fd]
            for offender in _offenders(batch[port]):
                answers[port] = offender
    return answers


def _send(prober: socket.socket, target: tuple[str, int]) -> None:
    try:
        prober.sendto(b"srd-lab verify", target)
    except OSError:  # an error that was queued meanwhile: it is read from the error queue, and the probe repeated
        return


def _offenders(prober: socket.socket) -> Iterable[str]:
    """Yield the addresses in the socket's error queue that report an expired TTL."""
    ip = _IP[6 if prober.family == socket.AF_INET6 else 4]
    while True:
        try:
            _, control, _, _ = prober.recvmsg(0, 512, socket.MSG_ERRQUEUE)
        except OSError:  # the queue is empty
            return
        for level, kind, data in control:
            if (level, kind) == (ip.level, ip.recverr):
                _, origin, icmp_type, *_ = _EXTENDED_ERROR.unpack_from(data)
                if (origin, icmp_type) == ip.time_exceeded:
                    _, address = ip.offender.unpack_from(data, _EXTENDED_ERROR.size)
                    yield socket.inet_ntop(ip.family, address)


def _ports(ports: tuple[int, ...]) -> str:
    listed = ", ".join(map(str, ports[:5])) + (" ..." if len(ports) > 5 else "")
    return f"{'port' if len(ports) == 1 else f'{len(ports)} ports'} {listed}"
