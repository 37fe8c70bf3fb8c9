"""One stream of a test at one end, whatever carries it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from netns.base.token_bucket import TokenBucket
from srd.perf.payload import PayloadSource

BURST_S: Final = 0.1
"""What idle time is worth at most: a stream that was stopped does not send all at once what it has missed."""


def pace(rate_bps: int, *, now: float) -> TokenBucket:
    """Return the bucket of a stream, of bytes: a block may go as soon as the one before it is paid for."""
    return TokenBucket(rate_bps / 8, depth_s=BURST_S, empty_at=now)


class Budget:
    """The bytes that a direction may send, over all its streams, which may be threads."""

    def __init__(self, size_bytes: int) -> None:
        """Allow `size_bytes`; 0: without end."""
        self._left_bytes = size_bytes
        self.is_limited = bool(size_bytes)
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> int:
        """Take up to `size_bytes`; return how many it may be."""
        if not self.is_limited:
            return size_bytes
        with self._lock:
            taken = min(size_bytes, self._left_bytes)
            self._left_bytes -= taken
            return taken


Address = tuple[str, int]
MAPPED: Final = "::ffff:"
Fail = Callable[[Exception], None]
"""Told of what ends a stream, on the event loop."""


def shown_host(host: str) -> str:
    """Return an address as it is shown: an IPv4 address that an IPv6 socket has is one of IPv4, as iperf3 shows it."""
    return host.removeprefix(MAPPED) if "." in host else host


def shown(address: Address) -> Address:
    """Return the same of an address with its port."""
    return shown_host(address[0]), address[1]


@dataclass(frozen=True, slots=True)
class StreamSnapshot:
    """The counters of a stream at one moment, since it was opened. What only a sender has is 0 at a receiver."""

    size_bytes: int
    """Sender: acknowledged (SRD), written (TCP). Receiver: arrived."""
    retransmits: int = 0
    """Packets."""
    cwnd_bytes: int = 0
    snd_wnd_bytes: int = 0
    """TCP: what the other end's window allows."""
    rtt_us: int = 0
    """Smoothed."""
    rttvar_us: int = 0
    pmtu_bytes: int = 0
    path_packets: tuple[int, ...] = ()
    """By path: packets sent. MPTCP: by subflow, segments."""


@dataclass(frozen=True, slots=True)
class SendWork:
    """What a sender is to send."""

    source: PayloadSource
    block_bytes: int
    budget: Budget
    pace: TokenBucket | None
    """Its rate; None: no limit."""


class PerfStream(ABC):
    """A sender or a receiver."""

    sends: bool

    def __init__(self, number: int) -> None:
        self.number = number
        self.size_bytes = 0  # counted so far

    @property
    @abstractmethod
    def ends(self) -> tuple[Address, Address]:
        """Own address and that of the other end."""

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    def stop(self) -> None:
        """Begin nothing any more."""

    @abstractmethod
    async def finished(self) -> None:
        """Wait until a sender has stopped, or has sent all it was to send, and all of that is counted."""

    @abstractmethod
    def snapshot(self) -> StreamSnapshot:
        """Return the counters as they are now."""

    @abstractmethod
    async def close(self) -> None:
        """End it at once, and release everything."""
