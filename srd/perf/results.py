"""What one end tells the other at the end of a test, and the report of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from netns.base.decoding import decoded_untrusted
from srd.perf.control import MAX_OUTPUT_BYTES, Fields
from srd.perf.errors import PerfError
from srd.perf.meter import Interval, Load, Total
from srd.perf.parameters import Parameters
from srd.perf.stream import Address


@dataclass(frozen=True, slots=True)
class EndFigures:
    """One end's figures."""

    totals: Sequence[Total]
    """By stream."""
    load: Load
    congestion: str
    """TCP: the congestion control that was used."""
    output: Any = None
    """What it has printed: text, or a JSON document."""


def results_untrusted(fields: Fields, *, parameters: Parameters) -> EndFigures:
    """Decode what a server sent. Raises PerfError, and nothing else."""
    try:
        found = decoded_untrusted(EndFigures, fields)
    except ValueError as error:
        raise PerfError(f"the server sent results with {error}") from error
    streams = [(number, not parameters.client_sends(number)) for number in range(parameters.count)]
    if [(total.number, total.sends) for total in found.totals] != streams:
        raise PerfError("the server's results are not those of this test")
    if not found.congestion.isprintable():
        raise PerfError("the server's results have no congestion control")
    return replace(found, output=_output_untrusted(found.output))


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
