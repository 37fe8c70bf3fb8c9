"""The same search of settings for every transport of docs/roce.md, and what it finds there on other seeds.

Each transport has SETTINGS settings: a grid over two or three numbers of its own that operators set, and over the
switches' alpha. A setting's score is the geometric mean, over the scenarios that are scored and SEARCHED seeds, of the
99th percentile of an incast of 48 over its ideal, the median of a permutation of 128 over its ideal, what a flow to the
incast's leaf takes beside it, and one over the goodput at 1 % loss. The best is played on REPORTED seeds, beside the
published setting; no seed is in both.

    PYTHONPATH=$PWD .venv/bin/python -m scripts.benches.roce_tuning [TRANSPORT]...
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Final

from netns.backends.virtual.lossless.profile import RedProfile
from srd.sim.models.dcqcn import DcqcnConfig, FirmwareConfig
from srd.sim.models.transports import (
    FIRMWARE_MARKING,
    PAPER_MARKING,
    Dcqcn,
    Irn,
    ModelTransport,
    Roce,
    Tcp,
    firmware_dcqcn,
)
from srd.sim.presets import MICROSECOND_FABRIC
from srd.sim.roce import scenarios
from srd.sim.roce.play import CONFIG, CONTENDERS, SHARP_MARKING, Contender

SETTINGS: Final = 12
SEARCHED: Final = (11, 12)
REPORTED: Final = (1, 2, 3, 4, 5)
SCENARIOS: Final = ("incast", "permutation", "victim", "loss")
ALPHAS: Final = (1 / 8, 1.0)
Found = dict[str, float]


def grid(name: str) -> dict[str, Contender]:
    """Return the settings of a transport by what they are; the published one is the first."""
    settings = dict(_GRIDS[name]())
    if len(settings) != SETTINGS:
        raise ValueError(f"{name}: {len(settings)} settings; all transports have {SETTINGS}")
    return settings


def _both(name: str, transport: ModelTransport) -> Contender:
    return replace(CONTENDERS[name], transport=transport, switches=transport)


def _roce() -> Iterator[tuple[str, Contender]]:
    for alpha, exponent in product((1 / 8, 1 / 16, 1 / 4, 1.0), (14, 11, 8)):
        yield (
            f"alpha {alpha:g}, timeout 4.096 us x 2^{exponent}",
            _both("roce", Roce(alpha=alpha, timeout_exponent=exponent)),
        )


def _dcqcn() -> Iterator[tuple[str, Contender]]:
    for alpha, marking, timer_us in product(ALPHAS, (PAPER_MARKING, SHARP_MARKING, FIRMWARE_MARKING), (55.0, 300.0)):
        config = DcqcnConfig(timer_us=timer_us)
        yield (
            f"alpha {alpha:g}, {_marks(marking)}, timer {timer_us:g} us",
            _both("dcqcn", Dcqcn(alpha=alpha, config=config, marking=marking)),
        )


def _firmware() -> Iterator[tuple[str, Contender]]:
    for alpha, marking, timer_us in product(ALPHAS, (FIRMWARE_MARKING, SHARP_MARKING, PAPER_MARKING), (300.0, 55.0)):
        config = FirmwareConfig(timer_us=timer_us)
        yield (
            f"alpha {alpha:g}, {_marks(marking)}, timer {timer_us:g} us",
            _both("dcqcn-firmware", firmware_dcqcn(alpha=alpha, firmware=config, marking=marking)),
        )


def _marks(marking: RedProfile) -> str:
    return f"marks {marking.low_bytes // 1000} to {marking.high_bytes // 1000} kB, {100 * marking.most:g} %"


def _irn() -> Iterator[tuple[str, Contender]]:
    for alpha, high_us, low_us in product(ALPHAS, (320, 100, 1000), (100, 30)):
        yield (
            f"alpha {alpha:g}, RTO {low_us} and {high_us} us",
            _both("irn", Irn(alpha=alpha, rto_low_ns=1000 * low_us, rto_high_ns=1000 * high_us)),
        )


def _cubic() -> Iterator[tuple[str, Contender]]:
    for alpha, rto_ms in product((1 / 8, 1 / 2, 1.0, 8.0), (200.0, 10.0, 1.0)):
        yield (
            f"alpha {alpha:g}, RTO of {rto_ms:g} ms at least",
            _both("cubic", Tcp("cubic", alpha=alpha, min_rto_s=rto_ms / 1e3)),
        )


def _dctcp() -> Iterator[tuple[str, Contender]]:
    for alpha, mark, rto_ms in product(ALPHAS, (3000, 1500, 9750), (200.0, 1.0)):
        yield (
            f"alpha {alpha:g}, K {mark / 100:g} kB at 10 Gbit/s, RTO of {rto_ms:g} ms at least",
            _both("dctcp", Tcp("dctcp", alpha=alpha, mark_bytes_per_gbps=mark, min_rto_s=rto_ms / 1e3)),
        )


def _srd() -> Iterator[tuple[str, Contender]]:
    targets = ((0.2, 1.0), (0.5, 3.0), (1.5, 5.0))
    for alpha, start, (rtts, floor_us) in product(ALPHAS, (MICROSECOND_FABRIC, CONFIG), targets):
        config = replace(start, delay_target_rtts=rtts, min_delay_target_s=floor_us / 1e6, max_peers=CONFIG.max_peers)
        yield (
            f"alpha {alpha:g}, window {start.initial_window_packets}, target {rtts:g} RTT, {floor_us:g} us",
            replace(CONTENDERS["srd"], switches=Tcp("cubic", alpha=alpha), config=config),
        )


_GRIDS: Final = {
    "roce": _roce, "dcqcn": _dcqcn, "dcqcn-firmware": _firmware, "irn": _irn, "cubic": _cubic, "dctcp": _dctcp,
    "srd": _srd,
}  # fmt: skip


def play(contender: Contender, scenario: str, seed: int) -> float:
    """Return what one scenario adds to the score: 1 is ideal, and less is better."""
    match scenario:
        case "incast":
            found = scenarios.incast(contender, senders=48, size_bytes=2_000_000, seed=seed)
            return found["p99_us"] / scenarios.ideal_us(48 * 2_000_000)
        case "permutation":
            return scenarios.permutation(contender, hosts=128, size_bytes=1_000_000, seed=seed)["median_over_ideal"]
        case "victim":
            return scenarios.victim(contender, seed=seed)["near_slowdown"]
        case _:
            return 1 / scenarios.loss(contender, percent=1.0, seed=seed)["goodput"]


def _job(job: tuple[str, str, str, int]) -> float:
    name, setting, scenario, seed = job
    try:
        return play(grid(name)[setting], scenario, seed)
    except ZeroDivisionError:  # a goodput of 0
        return math.inf


def scores(name: str, settings: Sequence[str], *, seeds: Sequence[int], pool: ProcessPoolExecutor) -> dict[str, Found]:
    """Return each setting's figures, the geometric means over the seeds, and its score."""
    jobs = [(name, *each) for each in product(settings, SCENARIOS, seeds)]
    values = dict(zip(jobs, pool.map(_job, jobs), strict=True))
    found = {}
    for setting in settings:
        means = {part: _mean([values[name, setting, part, seed] for seed in seeds]) for part in SCENARIOS}
        found[setting] = {"score": _mean(list(means.values()))} | means
    return found


def _mean(values: Sequence[float]) -> float:
    return math.exp(fmean(map(math.log, values)))


def main() -> None:
    """Search, play the best and the published setting, and print a line of JSON for each."""
    workers = int(os.environ.get("WORKERS", "1"))
    with ProcessPoolExecutor(workers) as pool:
        for name in sys.argv[1:] or _GRIDS:
            searched = scores(name, list(grid(name)), seeds=SEARCHED, pool=pool)
            for setting, found in searched.items():
                print(json.dumps({"transport": name, "searched": setting} | found), flush=True)
            published = next(iter(searched))
            best = min(searched, key=lambda setting: searched[setting]["score"])
            reported = scores(name, list(dict.fromkeys((published, best))), seeds=REPORTED, pool=pool)
            for setting, found in reported.items():
                print(json.dumps({"transport": name, "reported": setting} | found), flush=True)


if __name__ == "__main__":
    main()
