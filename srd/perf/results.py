"""What one end tells the other at the end of a test, and the report of both."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from srd.perf.control import MAX_OUTPUT_BYTES, Fields
from srd.perf.errors import PerfError
from srd.perf.meter import Interval, Load, Total
from srd.perf.parameters import Parameters
from srd.perf.stream import Address

_INTEGERS: Final = (
    "size_bytes", "retransmits", "max_cwnd_bytes", "max_snd_wnd_bytes", "min_rtt_us", "mean_rtt_us", "max_rtt_us",
    "paths",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EndFigures:
    """One end's figures."""

    totals: Sequence[Total]
    """By stream."""
    load: Load
    congestion: str
    """TCP: the congestion control that was used."""
    output: str | Fields | None = None
    """What it has printed: text, or a JSON document."""


def results_untrusted(fields: Fields, *, parameters: Parameters) -> EndFigures:
    """Decode what a server sent. Raises PerfError, and nothing else."""
    totals, load, congestion = fields.get("totals"), fields.get("load"), fields.get("congestion")
    if not isinstance(totals, list) or len(totals) != parameters.count:
        raise PerfError("the server's results are not those of this test")
    if not isinstance(congestion, str) or not congestion.isprintable():
        raise PerfError("the server's results have no congestion control")
    return EndFigures(
        [_total_untrusted(total, number=number, parameters=parameters) for number, total in enumerate(totals)],
        _load_untrusted(load),
        congestion,
        _output_untrusted(fields.get("output")),
    )


def _total_untrusted(fields: object, *, number: int, parameters: Parameters) -> Total:
    if not isinstance(fields, dict) or not is_figure(fields.get("seconds")):
        raise PerfError("the server's results of a stream have no time")
    counts = dict[str, int]()
    for name in _INTEGERS:
        count = fields.get(name)
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 1 << 63:
            raise PerfError("the server's results of a stream are no numbers")
        counts[name] = count
    return Total(number, not parameters.client_sends(number), float(fields["seconds"]), **counts)


def _load_untrusted(fields: object) -> Load:
    names = ("total", "user", "system")
    if not isinstance(fields, dict) or not all(is_figure(fields.get(name)) for name in names):
        raise PerfError("the server's results have no processor time")
    return Load(*(float(fields[name]) for name in names))


def is_figure(value: object) -> TypeGuard[int | float]:
    """Whether it is a number that a figure may have."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 <= value < 1e12 and math.isfinite(value)


def _output_untrusted(output: object) -> str | Fields | None:
    if output is None or isinstance(output, dict):
        return output
    if not isinstance(output, str):
        raise PerfError("the server's output is neither text nor JSON")
    return "".join(char for char in output if char.isprintable() or char == "\n")


def sendable_output(output: str | Fields) -> str | Fields:
    """Return a server's output, or why it is not sent."""
    size_bytes = len(output) if isinstance(output, str) else len(json.dumps(output))
    return output if size_bytes <= MAX_OUTPUT_BYTES else f"{size_bytes} bytes, which is too long to send\n"


@dataclass(frozen=True, slots=True)
class Start:
    """What is known when a test starts, at one end."""

    parameters: Parameters
    is_client: bool
    other: Address
    """The client: as it was named. The server: the client's address."""
    cookie: str
    at: float
    """Seconds since 1970."""
    ends: Sequence[tuple[Address, Address]]
    """By stream: own address and that of the other end."""
    mss_bytes: int = 0
    """TCP's largest segment; 0 for SRD."""
    sndbuf_bytes: int = 0
    rcvbuf_bytes: int = 0

    def sends(self, stream: int) -> bool:
        """Whether this end is the sender of the stream."""
        return self.parameters.client_sends(stream) is self.is_client


@dataclass(frozen=True, slots=True)
class PerfReport:
    """A test, as one end reports it."""

    start: Start
    intervals: Sequence[Interval]
    own: EndFigures
    other: EndFigures | None
    """None at a server, which prints its own figures."""

    def totals(self, stream: int) -> tuple[Total | None, Total | None]:
        """Return a stream's figures at its sender and at its receiver."""
        own = self.own.totals[stream]
        other = self.other.totals[stream] if self.other else None
        return (own, other) if own.sends else (other, own)


def describe(fields: Any) -> str:
    """Return JSON as this package prints it."""
    return json.dumps(fields, indent="\t")
