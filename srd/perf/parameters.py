"""What a test is to do: chosen by the client, checked by both ends."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from netns.base.decoding import decoded_untrusted
from netns.base.printable import printable
from srd.perf.errors import PerfError

MAX_SECONDS: Final = 86_400.0
"""iperf3's."""
MAX_OMIT_S: Final = 600.0
"""iperf3's."""
MAX_STREAMS: Final = 128
"""iperf3's; those of both directions together."""
MAX_SRD_BLOCK_BYTES: Final = 16 << 20
"""Longest message of SRD's default settings (`ProtocolConfig.max_message_bytes`)."""
MAX_TCP_BLOCK_BYTES: Final = 1 << 20
"""iperf3's."""
MAX_TOTAL_BYTES: Final = 1 << 60
MAX_RATE_BPS: Final = 10**13
SRD_BLOCK_BYTES: Final = 1 << 20
"""Long enough that the cost of a message does not matter."""
TCP_BLOCK_BYTES: Final = 128 << 10
"""iperf3's. More makes a plain TCP pair no faster."""
PACED_BLOCK_S: Final = 0.05
"""With a rate, how long one block takes at most: a rate is kept by the times of blocks, and each is sent at once."""
MAX_PACED_BLOCK_S: Final = 0.5
"""The same of a block of which the user gives the length: of the shortest tests some per cent."""
_ALGORITHM: Final = re.compile(r"[a-z0-9_-]{1,15}")  # TCP_CA_NAME_MAX is 16


def default_block_bytes(protocol: Protocol, *, rate_bps: int) -> int:
    """Return the length of a block if the user gives none. `rate_bps`: of a stream; 0: without a limit."""
    longest = SRD_BLOCK_BYTES if protocol is Protocol.SRD else TCP_BLOCK_BYTES
    return min(longest, max(1, round(rate_bps / 8 * PACED_BLOCK_S))) if rate_bps else longest


class Protocol(StrEnum):
    """What carries the data."""

    SRD = "SRD"
    TCP = "TCP"
    MPTCP = "MPTCP"


class Direction(StrEnum):
    """Who sends."""

    FORWARD = "forward"
    REVERSE = "reverse"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Parameters:
    """A test."""

    protocol: Protocol = Protocol.SRD
    congestion: str = ""
    """TCP and MPTCP: the name of the congestion control, for TCP_CONGESTION."""
    seconds: float = 10.0
    """How long; 0: until `size_bytes`."""
    size_bytes: int = 0
    """How much, over all streams of a direction; 0: until the time is over."""
    omit_s: float = 0.0
    """How long at the start does not count, on top of `seconds`."""
    streams: int = 1
    """Of each direction."""
    block_bytes: int = SRD_BLOCK_BYTES
    """SRD: a message. TCP: a write."""
    rate_bps: int = 0
    """Limit of each stream; 0: none."""
    direction: Direction = Direction.FORWARD
    verify: bool = False
    """Whether every byte is compared."""
    server_output: bool = False
    """Whether the client wants what the server prints."""

    @property
    def count(self) -> int:
        """Streams of both directions."""
        return self.streams * (2 if self.direction is Direction.BOTH else 1)

    def client_sends(self, stream: int) -> bool:
        """Whether the client is the sender of this stream."""
        return self.direction is Direction.FORWARD or (self.direction is Direction.BOTH and stream < self.streams)

    def check(self) -> None:
        """Raise PerfError for what no test can have."""
        most_block = MAX_SRD_BLOCK_BYTES if self.protocol is Protocol.SRD else MAX_TCP_BLOCK_BYTES
        check_ranges([
            ("time", self.seconds, 0.0, MAX_SECONDS),
            ("bytes", self.size_bytes, 0, MAX_TOTAL_BYTES),
            ("omitted time", self.omit_s, 0.0, MAX_OMIT_S),
            ("number of streams", self.count, 1, MAX_STREAMS),
            (f"length of a block of {self.protocol}", self.block_bytes, 1, most_block),
            ("bitrate", self.rate_bps, 0, MAX_RATE_BPS),
        ])  # fmt: skip
        if bool(self.seconds) is bool(self.size_bytes):
            raise PerfError("a test has a time or a number of bytes, one of them")
        if self.omit_s and not self.seconds:
            raise PerfError("a time is omitted from a test of some time, not of some bytes")
        check_congestion(self.protocol, self.congestion)


def check_ranges(values: Iterable[tuple[str, float, float, float]]) -> None:
    """Raise PerfError for a value that is not within its limits: (name, value, least, most)."""
    for name, value, least, most in values:
        if not least <= value <= most:  # NaN neither
            raise PerfError(f"{name}: {value:.15g} is not between {least:g} and {most:.15g}")


def check_congestion(protocol: Protocol, congestion: str) -> None:
    """Raise PerfError unless TCP has a congestion control that could be one, and SRD none."""
    if bool(congestion) is (protocol is Protocol.SRD):
        raise PerfError("a congestion control by name is TCP's")
    if congestion and not _ALGORITHM.fullmatch(congestion):
        raise PerfError(f"congestion: {printable(congestion)!r} is no name of a congestion control, such as cubic")


def parameters_untrusted(fields: object) -> Parameters:
    """Decode what a client sent. Raises PerfError, and nothing else."""
    try:
        parameters = decoded_untrusted(Parameters, fields)
    except ValueError as error:
        raise PerfError(f"a test without its parameters: {error}") from error
    parameters.check()
    return parameters
