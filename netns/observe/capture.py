"""Capture the packets on a link, in both directions, into a pcapng file.

Theory of operation. Each direction is captured where it arrives: at the interface of the far end, by a packet socket in
its namespace, with the kernel's timestamps. So in every backend the file contains the packets that the link delivered,
with the delivery times; lost packets are in the counters. The two interfaces of the file are called FROM>TO.

Packets are written in order of time. The kernel gives each socket's packets in order, but not those of both sockets
together: a packet may have its timestamp and not be in its socket yet, while one that came later is in the other. So a
packet is written once every socket has either a later one, or was found empty `HOLD_S` after it.

When the end is asked for, what has arrived until then is still read, however far behind the recording is: a packet that
is missing from the file was dropped by the kernel, which counts it.

A host's end with GRO shows packets as they were joined on arrival.
"""

from __future__ import annotations

import heapq
import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from netns.backends.kernel.netlink import in_namespace
from netns.lab.lab import Lab
from netns.observe.pcapng import PcapngFile, ReaderGoneError

ETH_P_ALL: Final = 3
PACKET_OUTGOING: Final = 4
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_TIMESTAMPNS, SO_RCVBUFFORCE = 35, 33
RECEIVE_BUFFER_BYTES: Final = 64 << 20
LOOK_S: Final = 0.1
HOLD_S: Final = 0.05
"""Between a packet's timestamp and its way into the socket the kernel may let others run, on a busy host."""
MAX_HELD: Final = 16_384
"""Packets that are held back at most: when a clock was set back, a timestamp may lie far in the future."""
BATCH: Final = 256
_TIMESPEC: Final = struct.Struct("=qq")


@dataclass(slots=True)
class Captured:
    """The packet counts of a capture."""

    packets: int = 0
    dropped: int = 0
    """Packets that the capture itself lost because it could not keep up."""


def capture(
    lab: Lab,
    link: str,
    *,
    path: Path,
    overwrite: bool = False,
    seconds: float | None = None,
    packets: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    ready: Callable[[], None] = lambda: None,
) -> Captured:
    """Capture a link until so many seconds are over or packets recorded, or `stop` returns true.

    `ready` is called at the start. With the path "-" the standard output is written; its reader ends the capture, too.

    `overwrite` allows to replace an earlier capture in that file (netns/observe/pcapng.py). Raises TopologyError for an
    unknown link, BackendError if the file cannot be written.
    """
    found = lab.topology.link(link)
    ends = ((found.a, found.b), (found.b, found.a))
    names = tuple(f"{sender}>{receiver}" for sender, receiver in ends)
    with ExitStack() as resources:
        file = resources.enter_context(
            PcapngFile(path, interfaces=names, comment=f"{found.name} of {lab.name}", overwrite=overwrite)
        )
        packet_sockets = [
            resources.enter_context(in_namespace(lab.netns(receiver), partial(_open, sender)))
            for sender, receiver in ends
        ]
        ready()
        captured = Captured()
        give_up_at = None if seconds is None else time.monotonic() + seconds
        try:
            _record(packet_sockets, file, captured, packets=packets, over=lambda: stop() or _past(give_up_at))
            for interface, packet_socket in enumerate(packet_sockets):
                received, dropped = struct.unpack("=2I", packet_socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
                captured.dropped += dropped
                file.statistics(interface=interface, at_ns=time.time_ns(), received=received, dropped=dropped)
        except ReaderGoneError:
            captured.packets = file.packets
    return captured


def _past(at: float | None) -> bool:
    return at is not None and time.monotonic() >= at


def _open(ifname: str) -> socket.socket:
    packet_socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    try:
        packet_socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    except PermissionError:  # root of a user namespace: use the unprivileged maximum
        packet_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    packet_socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    packet_socket.bind((ifname, ETH_P_ALL))
    return packet_socket


class _Held:
    """Packets that were read and are not written yet, in order of time."""

    def __init__(self, file: PcapngFile) -> None:
        self._file = file
        self._waiting: list[tuple[int, int, int, bytes]] = []  # a heap: time, number, interface, frame
        self.count = 0  # of all packets, those that were written included

    @property
    def is_waiting(self) -> bool:
        """Whether there are any."""
        return bool(self._waiting)

    def add(self, frame: bytes, *, interface: int, at_ns: int) -> None:
        """Hold a packet back."""
        heapq.heappush(self._waiting, (at_ns, self.count, interface, frame))
        self.count += 1

    def write(self, *, until_ns: int | None) -> None:
        """Write what arrived until then; None: all."""
        waiting = self._waiting
        while waiting and (until_ns is None or waiting[0][0] <= until_ns or len(waiting) > MAX_HELD):
            at_ns, _, interface, frame = heapq.heappop(waiting)
            self._file.packet(frame, interface=interface, at_ns=at_ns, length_bytes=len(frame))


def _record(
    packet_sockets: list[socket.socket],
    file: PcapngFile,
    captured: Captured,
    *,
    packets: int | None,
    over: Callable[[], bool],
) -> None:
    held, poll = _Held(file), select.poll()
    for packet_socket in packet_sockets:
        poll.register(packet_socket, select.POLLIN)
    if file.is_pipe:
        poll.register(file, 0)
    timeout_s, complete_ns = LOOK_S, 0
    end_ns: int | None = None  # what arrived until then is recorded; None: the end was not asked for yet
    while held.count != packets and (end_ns is None or complete_ns < end_ns):
        if end_ns is None and over():
            end_ns, timeout_s = time.time_ns(), HOLD_S
        events = dict(poll.poll(timeout_s * 1000))
        if file.is_pipe and events.get(file.fileno(), 0) & select.POLLERR:
            raise ReaderGoneError("the output was closed by its reader")
        complete_ns = min(
            _drain(packet_socket, held, interface=interface, packets=packets)
            for interface, packet_socket in enumerate(packet_sockets)
        )
        held.write(until_ns=complete_ns if end_ns is None else min(complete_ns, end_ns))
        timeout_s = HOLD_S if held.is_waiting or end_ns is not None else LOOK_S
    held.write(until_ns=end_ns)
    captured.packets = file.packets


def _drain(packet_socket: socket.socket, held: _Held, *, interface: int, packets: int | None) -> int:
    """Read the waiting packets, at most one batch, so that both directions are served, and `packets` in all.

    Returns the time up to which all packets were read.
    """
    complete_ns = last_ns = time.time_ns() - int(HOLD_S * 1e9)
    for _ in range(BATCH):
        if held.count == packets:
            break
        try:
            frame, control, _, address = packet_socket.recvmsg(1 << 18, 64)
        except BlockingIOError:
            return complete_ns
        seconds, rest_ns = _TIMESPEC.unpack(control[0][2])
        last_ns = seconds * 1_000_000_000 + rest_ns
        if address[2] != PACKET_OUTGOING:  # what is outgoing is captured at the other end
            held.add(frame, interface=interface, at_ns=last_ns)
    return min(complete_ns, last_ns)
