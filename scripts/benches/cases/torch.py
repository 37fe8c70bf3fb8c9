"""All-reduces of torch.distributed over SRD, beside gloo, which is TCP: bare, and on the demo's fabric.

Jobs of 2 and 4 ranks, one a host, over float32 tensors of 4 KiB, 256 KiB, 4 MiB and 64 MiB; on `bare`, a fabric without
shapes; on `clean`, four spines of 250 Mbit/s; on `lossy`, the same with 1 % loss on each link from a spine. Encrypted,
as SRD is by default; gloo is not, and its TCP has cubic, Linux's default. The two take turns. A figure is the median
over the all-reduces of a job, each as long as at its slowest rank. On the shaped fabrics the largest tensor has 16 MiB:
64 MiB would take half a minute a job.

nccl-tests' bandwidths (doc/PERFORMANCE.md there): `algbw` is the tensor over the time; `busbw` is that times 2(N-1)/N,
what each link carries in a ring.

`clean_over_gloo_ratio`: gloo's time over ours on `clean`, the worst from 4 MiB on; `small_over_gloo_ratio`: below;
`bare_over_gloo_ratio`: on `bare`, from 4 MiB on, where there is no network but the processor.
`lossy_over_gloo_ratio`: on `lossy`, 4 MiB and 2 ranks; `lossy_bbr_...` is gloo's with BBR, which minds 1 % little.
`dead_spine_step_ms`: two ranks all-reduce 1 MiB after 1 MiB; the link that has carried most fails silently; the longest
one from then on. `gloo_dead_spine_s`: the same of gloo, or how long it took until it ended with an error, or was
stopped after 45 s (`gloo_dead_spine_ended`, `gloo_dead_spine_hung`: 1).

`ddp_placed_step_ms`: the median step of a training by DDP of four ranks on the lab of `scripts/bench placement-ring`,
where `netns.placement` puts them, in one rack; `ddp_bad_step_ms`: with one in each block, as placed by a scheduler that
ignores the network; `ddp_bad_over_placed_ratio`.

Ranks and relay share the machine's cores, so other load adds to all times; ratios are of one round.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Final

from netns.errors import RankError
from netns.examples import file_named
from netns.faults.faults import fail
from netns.lab.lab import Lab
from netns.launcher import Launcher
from netns.topology.file import read_topology
from netns.topology.model import Topology, leaf_spine, reference
from scripts.benches.cases.placement_ring import placements
from scripts.benches.outcome import Figures, Round, Wanted, in_turn
from scripts.harness.client_server import Event
from scripts.harness.congestion import set_algorithm
from scripts.harness.needs import EVERYTHING, Need, lacks_library
from scripts.harness.ranks import heard, ranks
from srd.compare.counters import Reading
from srd.compare.fabric import conditioned
from srd.compare.grid import Condition
from srd.perf.tcp_socket import BBR, CUBIC, why_unavailable

WANTED: Final = (
    Wanted("clean_over_gloo_ratio", ">=", 1, over="median"),
    Wanted("small_over_gloo_ratio", ">=", 0.5, over="median"),
    Wanted("lossy_over_gloo_ratio", ">=", 3, over="median"),
    Wanted("dead_spine_step_ms", "<=", 100, over="median"),
)
NEEDS: Final = (Need("torch", EVERYTHING, partial(lacks_library, extra="torch")),)
SECONDS: Final = 0.0

BACKENDS: Final = ("srd", "gloo")
WORLDS: Final = (2, 4)
BARE: Final = {"4KiB": (4 << 10, 50), "256KiB": (256 << 10, 30), "4MiB": (4 << 20, 10), "64MiB": (64 << 20, 3)}
SHAPED: Final = {"4KiB": (4 << 10, 50), "256KiB": (256 << 10, 30), "4MiB": (4 << 20, 6), "16MiB": (16 << 20, 3)}
"""By name: bytes, and how many all-reduces."""
LARGE_BYTES: Final = 4 << 20
CUT_BYTES: Final = 1 << 20
CUT_STEPS: Final = 200
CUT_AFTER: Final = 20
"""Steps before the link fails."""
JOB_S: Final = 120.0
CUT_S: Final = 45.0
DDP_STEPS: Final = 15
DDP_PLACEMENTS: Final = {"placed": "required", "bad": "bad"}
"""As `placement_ring` calls them."""
RANK: Final = "scripts.harness.torch_rank"


def topology(name: str, *, spread: bool, loss: bool) -> Topology:
    """Return a fabric of four hosts below two leaves, neighbours in rank at different ones; `spread`: it is shaped."""
    made = leaf_spine(leaves=2, spines=4, hosts_per_leaf=2, mtu=9000, name=name, seed=1)
    if spread:
        shape = next(link.shape_ab for link in reference().links if link.shaped)
        links = [
            replace(link, shape_ab=shape, shape_ba=shape) if link.b in made.spines else link for link in made.links
        ]
        made = replace(made, links=tuple(links))
    return conditioned(made, Condition({"loss": "1%"}), name=name, seed=1) if loss else made


def measure(number: int, _seconds: float) -> Round:
    found: dict[str, dict[str, float]] = {backend: {} for backend in BACKENDS}
    turn = in_turn(BACKENDS, number=number)
    for fabric, work in (("bare", BARE), ("clean", SHAPED), ("lossy", SHAPED)):
        name = f"bench-torch-{os.getpid()}"
        with Lab.up(topology(name, spread=fabric != "bare", loss=fabric == "lossy")) as lab:
            set_algorithm(lab, lab.topology.hosts, name=CUBIC)
            for world in WORLDS:
                for backend in turn:
                    times = job_s(lab, backend, world=world, work=work)
                    found[backend] |= figures(times, fabric=fabric, world=world, work=work)
            if fabric == "lossy" and why_unavailable(algorithm=BBR, mptcp=False) is None:
                set_algorithm(lab, lab.topology.hosts, name=BBR)
                times = job_s(lab, "gloo", world=2, work=work)
                found["gloo"] |= figures(times, fabric="lossy_bbr", world=2, work=work)
    for backend in turn:
        with Lab.up(topology(f"bench-torch-{os.getpid()}", spread=True, loss=False)) as lab:
            set_algorithm(lab, lab.topology.hosts, name=CUBIC)
            found[backend] |= dead_spine(lab, backend)
    topology_of_racks = replace(read_topology(file_named("cluster")), name=f"bench-torch-{os.getpid()}", seed=1)
    with Lab.up(topology_of_racks, backend="relay") as lab:
        set_algorithm(lab, lab.topology.hosts, name=CUBIC)
        for backend in turn:
            found[backend] |= ddp_steps_ms(lab, backend)
    found["srd"]["ddp_bad_over_placed_ratio"] = found["srd"]["ddp_bad_step_ms"] / found["srd"]["ddp_placed_step_ms"]
    return Round(number, found["srd"] | ratios(found["srd"], found["gloo"]), {"gloo": found["gloo"]})


def hosts_of(lab: Lab, *, world: int) -> list[str]:
    """Return a host for each rank: of the two leaves in turn."""
    hosts = lab.topology.hosts
    return [hosts[0], hosts[2], hosts[1], hosts[3]][:world]


def started(lab: Lab, hosts: Sequence[str], backend: str, mode: str, work: Iterable[tuple[int, int]]) -> Launcher:
    return ranks(lab, hosts, RANK, backend, mode, *(f"{size_bytes}:{count}" for size_bytes, count in work))


def job_s(lab: Lab, backend: str, *, world: int, work: Mapping[str, tuple[int, int]]) -> dict[str, list[float]]:
    """Run a job; return the times of its all-reduces, by size."""
    with started(lab, hosts_of(lab, world=world), backend, "sizes", work.values()) as job:
        job.wait(on_line=heard(), timeout_s=JOB_S)
        left = iter(job.iterations_s)
        return {name: [next(left) for _ in range(count)] for name, (_, count) in work.items()}


def figures(
    times: Mapping[str, Sequence[float]], *, fabric: str, world: int, work: Mapping[str, tuple[int, int]]
) -> dict[str, float]:
    """Return what nccl-tests would show of a job."""
    found: dict[str, float] = {}
    for name, (size_bytes, _) in work.items():
        seconds = median(times[name])
        key = f"{fabric}_{world}ranks_{name}"
        found |= {
            f"{key}_ms": 1e3 * seconds,
            f"{key}_algbw_mbps": size_bytes * 8 / seconds / 1e6,
            f"{key}_busbw_mbps": size_bytes * 8 / seconds / 1e6 * 2 * (world - 1) / world,
        }
    return found


def ratios(ours: Figures, gloo: Figures) -> dict[str, float]:
    def over_gloo(fabric: str, world: int, name: str) -> float:
        key = f"{fabric}_{world}ranks_{name}_ms"
        return gloo[key] / ours[key]

    def worst(fabric: str, work: Mapping[str, tuple[int, int]], *, large: bool) -> float:
        names = [name for name, (size_bytes, _) in work.items() if (size_bytes >= LARGE_BYTES) == large]
        return min(over_gloo(fabric, world, name) for world in WORLDS for name in names)

    return {
        "clean_over_gloo_ratio": worst("clean", SHAPED, large=True),
        "small_over_gloo_ratio": worst("clean", SHAPED, large=False),
        "bare_over_gloo_ratio": worst("bare", BARE, large=True),
        "lossy_over_gloo_ratio": over_gloo("lossy", 2, "4MiB"),
    }


def ddp_steps_ms(lab: Lab, backend: str) -> dict[str, float]:
    """Train with ranks near each other, and far apart; return the median step of each."""
    hosts = placements(lab.topology)
    found: dict[str, float] = {}
    for name, placement in DDP_PLACEMENTS.items():
        events: list[Event] = []
        with ranks(lab, hosts[placement], RANK, backend, "train", "--steps", str(DDP_STEPS)) as job:
            job.wait(on_line=heard(events.append), timeout_s=JOB_S)
        found[f"ddp_{name}_step_ms"] = 1e3 * median(each["seconds"] for each in events if each["event"] == "step")
    return found


def dead_spine(lab: Lab, backend: str) -> dict[str, float]:
    """Run a job whose busiest link fails; return its longest step from then on, and whether it ended with an error."""
    before = Reading.take(lab)
    longest_s = failed_at = 0.0

    def on_event(step: Event) -> None:
        nonlocal longest_s, failed_at
        if step["event"] != "step":
            return
        if failed_at and step["at"] > failed_at:
            longest_s = max(longest_s, step["seconds"])
        if step["step"] == CUT_AFTER:
            fail(lab, Reading.take(lab).busiest_link(lab, since=before))
            failed_at = time.time()

    work = [(CUT_BYTES, CUT_STEPS)]
    ended = hung = 0
    with started(lab, hosts_of(lab, world=2), backend, "steps", work) as job:
        try:
            job.wait(on_line=heard(on_event), timeout_s=CUT_S)
        except RankError:
            hung = int(not any((rank.status or 0) > 0 for rank in job.ranks))  # then none has said anything
            ended, longest_s = 1 - hung, time.time() - failed_at if failed_at else math.nan
    if backend == "srd":
        return {"dead_spine_step_ms": math.nan if ended or hung else 1e3 * longest_s}
    return {"gloo_dead_spine_s": longest_s, "gloo_dead_spine_ended": ended, "gloo_dead_spine_hung": hung}
