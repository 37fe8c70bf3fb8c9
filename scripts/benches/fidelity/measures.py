"""Comparisons of two recordings of one setting: each is a test with a p-value, or a deviation with a bound.

- Probabilities (loss, duplicates, corruption, marks, reordering): chi-square over the two shares if the draws are
  independent, otherwise over the lengths of their runs. The runs are independent in every model of netem.
- Delays: Kolmogorov-Smirnov over all packets' delays. The jitter is two orders of magnitude above either host's.
- Deterministic settings (a constant delay, a rate, a full queue): the deviation of each recording from netem's model
  for the same arrivals, as a fraction, with the bound BOUND.
- Slots: Kolmogorov-Smirnov over the times between slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netns.netem.packet_ops import Opaque
from netns.netem.queue import Netem
from netns.netem.shape import Shape
from scripts.benches.fidelity.settings import Measure
from scripts.benches.fidelity.statistics import classes_differ, durations_differ, shares_differ
from scripts.benches.fidelity.trial import INTACT, MARKED, Recording

BOUND: Final = 0.02
SLOT_GAP_NS: Final = 3_000_000
LONGEST_RUN: Final = 60


@dataclass(frozen=True, slots=True)
class Comparison:
    """One of a setting's comparisons; `kernel` and `relay` are values for the reader."""

    measure: str
    kernel: float
    relay: float
    p_value: float | None = None
    """p-value of a test that both have the same distribution."""

    deviation: float | None = None
    """For deterministic settings: the worse of the two recordings' deviations from the model."""

    def failed(self, *, alpha: float) -> bool:
        """Whether the difference is significant at `alpha`, or exceeds BOUND."""
        by_chance = self.p_value is None or self.p_value >= alpha
        return not (by_chance and (self.deviation is None or self.deviation <= BOUND))


def compare(
    measure: Measure, shape: Shape, *, kernel: Recording, relay: Recording, length_bytes: int
) -> list[Comparison]:
    if measure in _MODELLED:
        figure = _MODELLED[measure]
        model = (figure(_modelled(shape, each, length_bytes=length_bytes), length_bytes) for each in (kernel, relay))
        measured = [figure(each, length_bytes) for each in (kernel, relay)]
        deviation = max(abs(value / wanted - 1) for value, wanted in zip(measured, model, strict=True))
        return [Comparison(measure, measured[0], measured[1], deviation=deviation)]
    return _DRAWN[measure](shape, kernel, relay)


def _delays(shape: Shape, kernel: Recording, relay: Recording) -> list[Comparison]:
    """Compare the delays of delayed packets; packets that skip the delay show only the host's own lateness."""
    first, second = (delays[delays > _ahead_ns(shape)] for delays in map(_delays_ns, (kernel, relay)))
    return [
        Comparison("delay_mean_us", first.mean() / 1e3, second.mean() / 1e3, durations_differ(first, second)),
        *(
            Comparison(f"delay_{name}_us", float(of(first)) / 1e3, float(of(second)) / 1e3)
            for name, of in (
                ("sd", np.std),
                ("p1", lambda sample: np.percentile(sample, 1)),
                ("p50", np.median),
                ("p99", lambda sample: np.percentile(sample, 99)),
            )
        ),
    ]


def _losses(_shape: Shape, kernel: Recording, relay: Recording) -> list[Comparison]:
    return [_shares("lost_fraction", *(~_arrived(each) for each in (kernel, relay)))]


def _bursts(_shape: Shape, kernel: Recording, relay: Recording) -> list[Comparison]:
    """Compare correlated losses: the lengths of bursts and of the gaps between them."""
    lost = [~_arrived(each) for each in (kernel, relay)]
    return [
        _shares("lost_fraction", *lost, independent=False),
        _runs_differ("burst_mean_packets", *lost, of=True),
        _runs_differ("gap_mean_packets", *lost),
    ]


def _duplicates(_shape: Shape, kernel: Recording, relay: Recording) -> list[Comparison]:
    twice = [np.bincount(each.number, minlength=len(each.entered_at_ns)) > 1 for each in (kernel, relay)]
    return [_shares("duplicated_fraction", *twice), _runs_differ("duplicate_run_packets", *twice)]


def _corrupted(_shape: Shape, kernel: Recording, relay: Recording) -> list[Comparison]:
    damaged = [_flagged(each, (each.flags & INTACT) == 0) for each in (kernel, relay)]
    return [_runs_differ("corrupt_run_packets", *damaged), _shares("corrupted_fraction", *damaged, independent=False)]


def _reordered(shape: Shape, kernel: Recording, relay: Recording) -> list[Comparison]:
    """Compare the number of packets that skipped the delay, and the gaps between them."""
    ahead = [_flagged(each, _delays_ns(each) <= _ahead_ns(shape)) for each in (kernel, relay)]
    shares = _shares("reordered_fraction", *ahead, independent=False)
    return [_runs_differ("reorder_gap_packets", *ahead), shares]


def _ahead_ns(shape: Shape) -> float:
    """Return the delay below which a packet counts as reordered: a tenth of the delay, above any host's lateness."""
    return shape.delay_us * 100 if shape.reorder_chance_percent else -1


def _marked(_shape: Shape, kernel: Recording, relay: Recording) -> list[Comparison]:
    return [_shares("marked_fraction", *((each.flags & MARKED) > 0 for each in (kernel, relay)))]


def _slots(shape: Shape, kernel: Recording, relay: Recording) -> list[Comparison]:
    starts = [_slot_starts_ns(each) for each in (kernel, relay)]
    gaps = [np.diff(each) for each in starts]
    sizes = [len(each.left_at_ns) / len(begun) for each, begun in zip((kernel, relay), starts, strict=True)]
    means = [float(each.mean()) / 1e3 for each in gaps]
    return [
        Comparison("slot_mean_us", means[0], means[1], _slots_differ(shape, gaps)),
        Comparison("slot_packets", sizes[0], sizes[1], deviation=abs(sizes[1] / sizes[0] - 1)),
    ]


def _slots_differ(shape: Shape, gaps: list[NDArray[np.int64]]) -> float | None:
    """Test the slots' lengths; None for slots of a constant length, which differ only by the hosts' lateness."""
    slot = shape.slot
    return None if slot is None or slot.min_us == slot.max_us > 0 else durations_differ(*gaps)


def _slot_starts_ns(recording: Recording) -> NDArray[np.int64]:
    left = np.sort(recording.left_at_ns)
    begins = np.concatenate(([True], np.diff(left) > SLOT_GAP_NS))
    return left[begins]


def _shares(name: str, first: NDArray[np.bool_], second: NDArray[np.bool_], *, independent: bool = True) -> Comparison:
    """Compare two shares. For correlated draws only the runs are tested; the share is informative."""
    p_value = shares_differ(int(first.sum()), len(first), int(second.sum()), len(second)) if independent else None
    return Comparison(name, float(first.mean()), float(second.mean()), p_value)


def _runs_differ(name: str, first: NDArray[np.bool_], second: NDArray[np.bool_], *, of: bool = False) -> Comparison:
    runs = [_runs(each, wanted=of) for each in (first, second)]
    edges = np.unique(np.geomspace(1, max(map(max, runs)) + 1, LONGEST_RUN).astype(int))
    histograms = [np.histogram(each, bins=edges)[0].tolist() for each in runs]
    means = [float(np.mean(each)) for each in runs]
    return Comparison(name, means[0], means[1], classes_differ(*histograms))


def _runs(flags: NDArray[np.bool_], *, wanted: bool) -> list[int]:
    """Return the lengths of the runs of `wanted`; [1] if there is none."""
    return [len(list(run)) for flag, run in groupby(flags.tolist()) if flag is wanted] or [1]


def _flagged(recording: Recording, which: Any) -> NDArray[np.bool_]:
    """Return for each packet whether any of its departures is among `which`, a mask."""
    flags = np.zeros(len(recording.entered_at_ns), dtype=np.bool_)
    flags[recording.number[which]] = True
    return flags


def _arrived(recording: Recording) -> NDArray[np.bool_]:
    return _flagged(recording, slice(None))


def _delays_ns(recording: Recording) -> NDArray[np.int64]:
    return recording.left_at_ns - recording.entered_at_ns[recording.number]


def _modelled(shape: Shape, recording: Recording, *, length_bytes: int) -> Recording:
    """Return the output of netem's model for the recording's arrivals."""
    netem: Netem[int] = Netem(shape, seed=1, ops=_Sized(length_bytes))
    left: list[tuple[int, int]] = []

    def drain(until_ns: int) -> None:
        while (at_ns := netem.next_at_ns) is not None and at_ns <= until_ns:
            if (due := netem.dequeue(at_ns)) is not None:
                left.append(due)

    for number, now_ns in enumerate(recording.entered_at_ns.tolist()):
        drain(now_ns)
        netem.enqueue(now_ns, packet=number, length_bytes=length_bytes)
    drain(2**63)
    at_ns, number_of = (np.array(column, dtype=np.int64) for column in zip(*left, strict=True))
    return Recording(recording.entered_at_ns, at_ns, number_of, np.full(len(left), INTACT))


class _Sized(Opaque):
    """Packets by number, all of the same length."""

    def __init__(self, length_bytes: int) -> None:
        self._length_bytes = length_bytes

    def length_bytes(self, packet: object) -> int:  # noqa: ARG002
        return self._length_bytes


def _rate_mbps(recording: Recording, length_bytes: int) -> float:
    span_ns = int(recording.left_at_ns.max() - recording.left_at_ns.min())
    return (len(recording.left_at_ns) - 1) * length_bytes * 8e3 / span_ns


def _median_us(recording: Recording, _length_bytes: int) -> float:
    return float(np.median(_delays_ns(recording))) / 1e3


def _passed_fraction(recording: Recording, _length_bytes: int) -> float:
    return float(_arrived(recording).mean())


_MODELLED: Final[dict[str, Callable[[Recording, int], float]]] = {
    "rate": _rate_mbps,
    "delay": _median_us,
    "overlimit": _passed_fraction,
}

_DRAWN: Final[dict[str, Callable[[Any, Recording, Recording], list[Comparison]]]] = {
    "delays": _delays,
    "losses": _losses,
    "bursts": _bursts,
    "duplicates": _duplicates,
    "corrupted": _corrupted,
    "reordered": _reordered,
    "marked": _marked,
    "slots": _slots,
}
