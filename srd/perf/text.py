"""A report in iperf3's lines, with two columns more: the smoothed round trip, and the paths that were used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from srd.perf.meter import Interval, StreamInterval, Total
from srd.perf.parameters import Direction
from srd.perf.results import PerfReport, Start

RULE: Final = "- " * 24 + "-"
_PREFIXES: Final = ("", "K", "M", "G", "T")


def amount(value: float, *, step: int, unit: str) -> str:
    """Return a number in iperf3's form, such as 1.25 MBytes: three digits, and prefixes of `step` (1000 or 1024)."""
    for prefix in _PREFIXES:
        if value < step or prefix == _PREFIXES[-1]:
            break
        value /= step
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:4.{digits}f} {prefix}{unit}"


def _size(size_bytes: int) -> str:
    return amount(size_bytes, step=1024, unit="Bytes")


class TextReport:
    """Prints a test while it runs, line by line."""

    def __init__(self, line: Callable[[str], None]) -> None:
        """`line` prints one line, without its end."""
        self._print = line
        self._last = ""
        self._start: Start | None = None
        self._was_omitted = False

    def started(self, start: Start) -> None:
        """Print who is connected, and the header."""
        self._start = start
        what = start.parameters.protocol
        if start.is_client:
            self._line(f"Connecting to host {start.other[0]}, port {start.other[1]}")
            if start.parameters.direction is Direction.REVERSE:
                self._line(f"Reverse mode, remote host {start.other[0]} is sending")
        else:
            self._line(f"Accepted connection from {start.other[0]}, port {start.other[1]}")
        for number, (own, other) in enumerate(start.ends):
            self._line(
                f"[{number + 1:3d}] local {own[0]} port {own[1]} connected to {other[0]} port {other[1]}, {what}"
            )
        self._header(summary=False)

    def _line(self, line: str) -> None:
        """Print a line, unless it is a second rule."""
        if line != RULE or self._last != RULE:
            self._print(line)
        self._last = line

    def _header(self, *, summary: bool) -> None:
        start = self._known()
        role = "[Role]" if start.parameters.direction is Direction.BOTH else ""
        line = f"[ ID]{role} Interval           Transfer     Bitrate"
        sends = any(start.sends(number) for number in range(start.parameters.count))
        if summary:
            line += "         Retr  Paths"
        elif sends:
            line += "         Retr  Cwnd         RTT       Paths"
        self._line(line)

    def _known(self) -> Start:
        if self._start is None:
            raise RuntimeError("a report before its start")
        return self._start

    def interval(self, interval: Interval) -> None:
        """Print an interval, with sums of several streams."""
        start = self._known()
        if self._was_omitted and not interval.omitted:
            self._line(RULE)
        self._was_omitted = interval.omitted
        tail = "  (omitted)" if interval.omitted else ""
        for stream in interval.streams:
            head = self._head(f"{stream.number + 1:3d}", sends=stream.sends)
            self._line(f"{head}{_moved(interval, stream.size_bytes)}{_state(stream)}{tail}".rstrip())
        if start.parameters.streams > 1:
            for sends in (True, False):
                streams = [stream for stream in interval.streams if stream.sends is sends]
                if streams:
                    self._sum(interval, streams, tail=tail)
            self._line(RULE)

    def _sum(self, interval: Interval, streams: Sequence[StreamInterval], *, tail: str) -> None:
        sends = streams[0].sends
        retransmits = f"  {sum(stream.retransmits for stream in streams):3d}" if sends else ""
        moved = _moved(interval, sum(stream.size_bytes for stream in streams))
        self._line(f"{self._head('SUM', sends=sends)}{moved}{retransmits}{tail}".rstrip())

    def _head(self, name: str, *, sends: bool) -> str:
        start = self._known()
        if start.parameters.direction is not Direction.BOTH:
            return f"[{name}] "
        return f"[{name}][{'TX' if sends else 'RX'}-{'C' if start.is_client else 'S'}] "

    def interrupted(self, report: PerfReport) -> None:
        """Print the summary of what is known."""
        self.ended(report)

    def ended(self, report: PerfReport) -> None:
        """Print the summary: a line of the sender and one of the receiver for each stream, as far as both are known."""
        start = self._known()
        self._line(RULE)
        self._header(summary=True)
        numbers = range(start.parameters.count)
        for number in numbers:
            for total, who in zip(report.totals(number), ("sender", "receiver"), strict=True):
                self._total(f"{number + 1:3d}", [total], who=who, sends=start.sends(number))
        if start.parameters.streams > 1:
            for sends in (True, False):
                ends = [report.totals(number) for number in numbers if start.sends(number) is sends]
                if ends:
                    self._total("SUM", [sent for sent, _ in ends], who="sender", sends=sends)
                    self._total("SUM", [received for _, received in ends], who="receiver", sends=sends)
        self._line("")

    def _total(self, name: str, totals: Sequence[Total | None], *, who: str, sends: bool) -> None:
        known = [total for total in totals if total is not None]
        if not known:
            return
        seconds = max(total.seconds for total in known)
        size_bytes = sum(total.size_bytes for total in known)
        counters = " " * 12
        if who == "sender":
            paths = f"{max(total.paths for total in known):5d}" if name != "SUM" else " " * 5
            counters = f"  {sum(total.retransmits for total in known):3d}  {paths}"
        moved = _moved_in(0.0, seconds, size_bytes)
        self._line(f"{self._head(name, sends=sends)}{moved}{counters}     {who}")


def _moved(interval: Interval, size_bytes: int) -> str:
    return _moved_in(interval.start_s, interval.end_s, size_bytes)


def _moved_in(start_s: float, end_s: float, size_bytes: int) -> str:
    seconds = end_s - start_s
    rate = amount(8 * size_bytes / seconds if seconds > 0 else 0.0, step=1000, unit="bits/sec")
    return f"{start_s:6.2f}-{end_s:<6.2f} sec  {_size(size_bytes):>11}  {rate:>14}"


def _state(stream: StreamInterval) -> str:
    if not stream.sends:
        return ""
    now = stream.now
    return f"  {stream.retransmits:3d}   {_size(now.cwnd_bytes):<11}  {now.rtt_us / 1000:6.2f} ms  {stream.paths:5d}"
