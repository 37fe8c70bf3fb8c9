"""The figures of a cell. Pure: from what its workers said.

Rules. A cell is `ok` if every flow's sender has the receiver's confirmation that all bytes are right, within the time
limit; a file must have landed, too. Otherwise it has no completion time, and its goodput is what had arrived over the
limit (`timeout`) or over the time until then (`failed`). Flows that did complete keep their times.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

Samples = tuple[tuple[float, int], ...]
"""(seconds since the start, bytes)"""

MAX_SAMPLES: Final = 400
"""Of a cell's progress that are kept: more than a plot shows."""


@dataclass(frozen=True, slots=True)
class CellProgress:
    """What has arrived so far."""

    seconds: float
    """Since the start."""
    size_bytes: int
    total_bytes: int
    event: str
    """What happened to the fabric last; empty if nothing did."""


OnProgress = Callable[[CellProgress], None]


class CellState(StrEnum):
    """How a cell ended."""

    OK = "ok"
    TIMEOUT = "timeout"
    FAILED = "failed"
    UNAVAILABLE = "n/a"


@dataclass(frozen=True, slots=True)
class FlowOutcome:
    """One flow."""

    size_bytes: int
    at_s: float
    """When it began."""
    seconds: float | None
    """From when it was handed to the transport to the confirmation at the sender; None: it was not complete."""
    ideal_s: float
    """The same in an empty fabric without any overhead."""

    @property
    def slowdown(self) -> float | None:
        """How many times longer it took; None if it did not end, or if nothing limits an empty fabric."""
        return None if self.seconds is None or not self.ideal_s else self.seconds / self.ideal_s


@dataclass(frozen=True, slots=True)
class Loads:
    """How busy the machine was while a cell was measured; None: not known."""

    machine_busy: float | None = None
    """Share of all cores that was in use, by any process."""
    stolen: float | None = None
    """Share of all cores that a hypervisor gave to others, which pauses this machine for milliseconds."""
    relay_cpu: float | None = None
    """Share of one core that the relay used; None without a relay, too."""
    workers_cpu: float | None = None
    """Share of one core that all workers used together: the transport's processor time, and what verifying takes."""
    busiest_worker_cpu: float | None = None
    """Of the one that used most."""
    cores: float | None = None
    """How many the machine has."""


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """One cell."""

    state: CellState
    reason: str | None = None
    """Why it is not `ok`, in one line."""
    flows: tuple[FlowOutcome, ...] = ()
    size_bytes: int = 0
    """What had arrived."""
    elapsed_s: float = 0.0
    """From the start to the last confirmation; if not ok, to the end of watching."""
    progress: Samples = ()
    """Of all receivers together."""
    longest_stall_ms: float | None = None
    """The longest time in which a receiver that had not everything got less than a tenth of its mean rate."""
    resent_fraction: float | None = None
    """Share of what was sent that had been sent before: packets (SRD), or bytes (TCP)."""
    path_shares: Mapping[str, float] = field(default_factory=dict)
    """Each spine's share of the bytes that the switches over the senders sent up, into a dead link included."""
    events: tuple[tuple[float, str], ...] = ()
    """What happened to the fabric: seconds since the start, and what."""
    note: str | None = None
    """A remark on these figures."""
    backend: str = ""
    """What carried the links: kernel or relay."""
    loads: Loads = Loads()

    @property
    def goodput_bps(self) -> float:
        """Payload bits over time."""
        return 8 * self.size_bytes / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def seconds(self) -> float | None:
        """Completion time of the last flow."""
        return self.elapsed_s if self.state is CellState.OK else None

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON; `from_dict` is the inverse, `goodput_bps` and `seconds` are for other readers."""
        return {
            "state": self.state.value,
            "reason": self.reason,
            "seconds": self.seconds,
            "goodput_bps": round(self.goodput_bps),
            "bytes": self.size_bytes,
            "elapsed_s": self.elapsed_s,
            "longest_stall_ms": self.longest_stall_ms,
            "resent_fraction": self.resent_fraction,
            "path_shares": dict(self.path_shares),
            "events": [list(event) for event in self.events],
            "note": self.note,
            "backend": self.backend,
            **asdict(self.loads),
            "flows": [[flow.size_bytes, flow.at_s, flow.seconds, flow.ideal_s] for flow in self.flows],
            "progress": [list(sample) for sample in self.progress],
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> CellOutcome:
        """Invert `to_dict`. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            state=CellState(fields["state"]),
            reason=fields["reason"],
            flows=tuple(FlowOutcome(*flow) for flow in fields["flows"]),
            size_bytes=fields["bytes"],
            elapsed_s=fields["elapsed_s"],
            progress=tuple((seconds, size_bytes) for seconds, size_bytes in fields["progress"]),
            longest_stall_ms=fields["longest_stall_ms"],
            resent_fraction=fields["resent_fraction"],
            path_shares=fields["path_shares"],
            events=tuple((seconds, text) for seconds, text in fields["events"]),
            note=fields["note"],
            backend=fields["backend"],
            loads=Loads(**{name: fields.get(name) for name in Loads.__dataclass_fields__}),
        )


def together(progress: Iterable[Sequence[tuple[float, int]]]) -> Samples:
    """Return the bytes of all receivers over time, from those of each, at most MAX_SAMPLES."""
    steps = []
    for samples in progress:
        before = 0
        steps.append([(seconds, (before, before := size_bytes)) for seconds, size_bytes in samples])
    total, found = 0, [(0.0, 0)]
    for seconds, same in groupby(heapq.merge(*steps), key=lambda step: step[0]):
        total += sum(after - earlier for _, (earlier, after) in same)
        found.append((seconds, total))
    stride = -(-len(found) // MAX_SAMPLES)
    return tuple(found if stride == 1 else [*found[:-1:stride], found[-1]])


def shares(byte_counts: Mapping[str, int]) -> dict[str, float]:
    """Return each count's share of their sum; zeros if nothing was counted."""
    total = sum(byte_counts.values())
    return {name: round(count / total, 4) if total else 0.0 for name, count in byte_counts.items()}


def accounts(events: Iterable[Mapping[str, Any] | None]) -> tuple[float | None, float | None, tuple[float, ...]]:
    """Return the longest stall (ms), the fraction that was sent again, and each host's processor seconds.

    Of the hosts that have accounted.
    """
    known = [event for event in events if event is not None]
    stalls = [event["longest_stall_ms"] for event in known if event["longest_stall_ms"] is not None]
    sent = sum(event["sent"] for event in known)
    resent = sum(event["resent"] for event in known)
    resent_fraction = round(resent / sent, 6) if sent else None
    return max(stalls, default=None), resent_fraction, tuple(event["cpu_s"] for event in known)
