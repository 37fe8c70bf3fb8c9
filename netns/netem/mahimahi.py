"""Links with a varying rate, from a recording: mahimahi's traces of delivery opportunities.

Source: mahimahi, mm-link(1): R. Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015.

A trace is a text file with one line for each opportunity to deliver 1500 bytes: its time in milliseconds. Times never
decrease; the last one is the length of the trace, which repeats without end. An opportunity is lost if no packet waits
for it, and a packet may need several.

Bytes are those of the IP packet, as in mahimahi, without the Ethernet header. The rest of an opportunity that a packet
does not fill is available to the packet behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from pathlib import Path
from typing import Final

from netns.errors import ShapeError

OPPORTUNITY_BYTES: Final = 1500
ETHERNET_HEADER_BYTES: Final = 14
NS_PER_MS: Final = 1_000_000
MAX_FILE_BYTES: Final = 64 << 20
MAX_DIGITS: Final = 12
"""Of a time in milliseconds: 30 years."""


@lru_cache(maxsize=64)
def read_trace(path: Path) -> tuple[int, ...]:
    """Return the times of the opportunities in `path`, in ms. Raises ShapeError with file, line and value."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        lines = content.decode().splitlines()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have, or not text
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ShapeError(f"trace: {path}: {reason}; give a file in mahimahi's format, a millisecond a line") from None
    if len(content) > MAX_FILE_BYTES:
        raise ShapeError(f"trace: {path}: larger than {MAX_FILE_BYTES >> 20} MiB; this is no trace")
    times: list[int] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip().isdecimal():
            raise ShapeError(f"trace: {path}: line {number}: {line[:20]!r} is not a whole number of milliseconds")
        if len(line.strip()) > MAX_DIGITS:
            raise ShapeError(f"trace: {path}: line {number}: {line[:20]!r}... ms are longer than a trace can be")
        if times and int(line) < times[-1]:
            raise ShapeError(f"trace: {path}: line {number}: {int(line)} ms comes after {times[-1]} ms; sort the file")
        times.append(int(line))
    if not times or times[-1] == 0:
        raise ShapeError(f"trace: {path}: its last line must be later than 0 ms, as the trace repeats from there")
    return tuple(times)


class DeliveryOpportunities:
    """Replays a trace from the time of its first packet; packets are served in the order of the calls."""

    __slots__ = ("_left_bytes", "_next", "_started_at_ns", "_times_ms")

    def __init__(self, times_ms: tuple[int, ...]) -> None:
        self._times_ms = times_ms
        self._started_at_ns: int | None = None
        self._next = 0
        """The number of the current opportunity, counted through all repetitions."""
        self._left_bytes = OPPORTUNITY_BYTES

    def serve(self, ready_at_ns: int, *, length_bytes: int) -> int:
        """Return when a packet that may leave from `ready_at_ns` on has been delivered completely."""
        if self._started_at_ns is None:
            self._started_at_ns = ready_at_ns
        self._skip_to(ready_at_ns)
        remaining = length_bytes - ETHERNET_HEADER_BYTES
        while remaining > self._left_bytes:
            remaining -= self._left_bytes
            self._take_next()
        self._left_bytes -= max(remaining, 0)
        at_ns = max(self._at_ns(self._next), ready_at_ns)
        if not self._left_bytes:
            self._take_next()
        return at_ns

    def _skip_to(self, ready_at_ns: int) -> None:
        """Discard the opportunities before `ready_at_ns`."""
        if self._at_ns(self._next) >= ready_at_ns:
            return
        times = self._times_ms
        elapsed_ms = -(-(ready_at_ns - (self._started_at_ns or 0)) // NS_PER_MS)
        rounds, into_ms = divmod(elapsed_ms, times[-1])
        following = rounds * len(times) + bisect_left(times, into_ms)
        while following and self._at_ns(following - 1) >= ready_at_ns:  # the end of a repetition starts the next
            following -= 1
        self._next, self._left_bytes = following, OPPORTUNITY_BYTES

    def _at_ns(self, number: int) -> int:
        times = self._times_ms
        rounds, index = divmod(number, len(times))
        return (self._started_at_ns or 0) + (rounds * times[-1] + times[index]) * NS_PER_MS

    def _take_next(self) -> None:
        self._next += 1
        self._left_bytes = OPPORTUNITY_BYTES
