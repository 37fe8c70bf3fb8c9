"""TCP fidelity: goodput of kernel TCP through the relay, over its goodput through the kernel's netem.

Five settings, slow enough that neither host's CPU is the limit. netem runs under User-Mode Linux if the host has none;
both use cubic, each in its kernel's version. Medians of three runs each. `tcp_worst_deviation_fraction`: the largest
|relay / netem - 1| of the five.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Final

from netns.backends.uml import KERNEL
from netns.netem.shape import Shape
from scripts.benches.cases.fidelity import lacks_netem, run_trial
from scripts.benches.outcome import Round, Wanted
from scripts.harness.needs import EVERYTHING, Need
from scripts.harness.steps import step

WANTED: Final = (Wanted("tcp_worst_deviation_fraction", "<=", 0.15),)
NEEDS: Final = (Need("iperf3", EVERYTHING), Need(KERNEL, EVERYTHING, lacks_netem))
SECONDS: Final = 12
RUNS: Final = 3
SETTINGS: Final = {
    "rate": Shape.parse({"rate": "10mbit", "delay": "10ms", "limit": 60}),
    "long": Shape.parse({"rate": "5mbit", "delay": "50ms", "limit": 60}),
    "short_queue": Shape.parse({"rate": "10mbit", "delay": "10ms", "limit": 25}),
    "jitter": Shape.parse({"rate": "10mbit", "delay": "10ms 2ms", "distribution": "normal", "limit": 60}),
    # Enough losses (some 200 per run) that their random number does not matter.
    "loss": Shape.parse({"rate": "20mbit", "delay": "5ms", "loss": "2%", "limit": 100}),
}


def measure(seed: int) -> Round:
    relay, kernel = (_medians(fabric) for fabric in ("relay", "kernel"))
    deviations = {name: abs(relay[name] / kernel[name] - 1) for name in SETTINGS}
    return Round(
        seed,
        {
            "tcp_worst_deviation_fraction": max(deviations.values()),
            **{f"{name}_mbps": value for name, value in relay.items()},
        },
        {"netem": {f"{name}_mbps": value for name, value in kernel.items()}},
    )


def _medians(fabric: str) -> dict[str, float]:
    found: defaultdict[str, list[float]] = defaultdict(list)
    settings = {each: shape.to_dict() for each, shape in SETTINGS.items()}
    for run in range(RUNS):
        step(f"{fabric}, {run + 1} of {RUNS}")
        carried = run_trial("scripts.benches.fidelity.tcp_trial", fabric=fabric, seconds=SECONDS, settings=settings)
        for each, value in carried["mbps"].items():
            found[each].append(value)
    return {each: median(values) for each, values in found.items()}
