"""Capture the packets on a link, in both directions, into a pcapng file.

Theory of operation. Each direction is captured where it arrives: at the interface of the far end, by a packet socket in
its namespace, with the kernel's timestamps. So in every backend the file contains the packets that the link delivered,
with the delivery times; lost packets are in the counters. The two interfaces of the file are called FROM>TO.

A host's end with GRO shows packets as they were joined on arrival.
"""

from __future__ import annotations

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
from netns.observe.pcapng import PcapngFile

ETH_P_ALL: Final = 3
PACKET_OUTGOING: Final = 4
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_TIMESTAMPNS, SO_RCVBUFFORCE = 35, 33
RECEIVE_BUFFER_BYTES: Final = 64 << 20
LOOK_S: Final = 0.1
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

    `ready` is called at the start.

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
        _record(packet_sockets, file, captured, packets=packets, over=lambda: stop() or _past(give_up_at))
        for interface, packet_socket in enumerate(packet_sockets):
            received, dropped = struct.unpack("=2I", packet_socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
            captured.dropped += dropped
            file.statistics(interface=interface, at_ns=time.time_ns(), received=received, dropped=dropped)
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


def _record(
    packet_sockets: list[socket.socket],
    file: PcapngFile,
    captured: Captured,
    *,
    packets: int | None,
    over: Callable[[], bool],
) -> None:
    poll = select.poll()
    places = {packet_socket.fileno(): place for place, packet_socket in enumerate(packet_sockets)}
    for packet_socket in packet_sockets:
        poll.register(packet_socket, select.POLLIN)
    while not over():
        for fd, _ in poll.poll(LOOK_S * 1000):
            _drain(packet_sockets[places[fd]], file, captured, interface=places[fd], packets=packets)
            if captured.packets == packets:
                return


def _drain(
    packet_socket: socket.socket, file: PcapngFile, captured: Captured, *, interface: int, packets: int | None
) -> None:
    """Write the waiting packets, at most one batch, so that both directions are served, and `packets` in all."""
    for _ in range(BATCH):
        if captured.packets == packets:
            return
        try:
            frame, control, _, address = packet_socket.recvmsg(1 << 18, 64)
        except BlockingIOError:
            return
        if address[2] == PACKET_OUTGOING:
            continue  # outgoing: it is captured at the other end
        seconds, rest_ns = _TIMESPEC.unpack(control[0][2])
        at_ns = seconds * 1_000_000_000 + rest_ns
        file.packet(frame, interface=interface, at_ns=at_ns, length_bytes=len(frame))
        captured.packets += 1
