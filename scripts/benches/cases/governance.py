"""Governance: Kueue's own facts, a cycle of a busy cluster, and a day of a large one in virtual time.

`governance_cases_failed`: of the cases in tests/data/governance_cases.json. `cycle_ms`: one cycle with 1,000 pending
and 5,000 admitted workloads over 50 queues in 5 cohorts under a root, two flavors, two resources, full, with fair
sharing or without: the slower of the two. `sim_10000_jobs_s`: `srd-lab queue sim philly`, 10,000 jobs on 2,500 nodes,
with topology and governance. Times are processor time, the fastest of three; the simulation runs once.
"""

from __future__ import annotations

import random
from time import process_time
from typing import Final

from netns.governance import Settings, State, answer, cycle
from netns.governance.model import (
    Admission,
    ClusterQueue,
    Cohort,
    LocalQueue,
    PodSetAdmission,
    Preemption,
    Quota,
    ResourceGroup,
    Workload,
    WorkloadCondition,
)
from netns.governance.settings import BOTH_STRATEGIES
from netns.governance.simulate import NODE_GPUS, GovernanceSimulation
from netns.governance.trace import generated
from netns.placement.model import PlacementRequest, ResourceFlavor
from scripts.benches.outcome import Figures, Wanted
from scripts.harness.steps import step

WANTED: Final = (
    Wanted("governance_cases_failed", "<=", 0),
    Wanted("cycle_ms", "<", 100),
    Wanted("sim_10000_jobs_s", "<", 60),
)
QUEUES, ADMITTED, PENDING, NODES, JOBS = 50, 5000, 1000, 2500, 10_000
GPU: Final = "nvidia.com/gpu"
FLAVORS: Final = ("h100", "a100")


def measure(seed: int) -> Figures:
    from tests.netns.governance_cases import CASES, differences  # noqa: PLC0415 - read for this case alone

    step(f"Kueue's {len(CASES):,} facts, a cycle, and {JOBS:,} jobs")
    return {
        "governance_cases_failed": sum(bool(differences(case["expect"], answer(case))) for case in CASES),
        "cycle_ms": max(_cycle_s(seed, fair=fair) for fair in (False, True)) * 1e3,
        "sim_10000_jobs_s": _simulation_s(seed),
    }


def busy(seed: int, *, fair: bool) -> State:
    """Return a full cluster, with preemption and borrowing."""
    rng = random.Random(seed)  # noqa: S311 - a workload
    quotas = {"cpu": Quota(1_000_000), GPU: Quota(100)}
    group = ResourceGroup(("cpu", GPU), tuple((name, quotas) for name in FLAVORS))
    rules = Preemption("LowerPriority", "Any", while_borrowing=True)
    names = [f"q{number}" for number in range(QUEUES)]
    state = State(
        Settings(fair_sharing=BOTH_STRATEGIES if fair else None),
        flavors=[ResourceFlavor(name) for name in FLAVORS],
        queues=[ClusterQueue(name, f"c{number % 5}", (group,), preemption=rules) for number, name in enumerate(names)],
        cohorts=[Cohort(f"c{number}", "root") for number in range(5)],
        local_queues=[LocalQueue(f"n/{name}", name) for name in names],
    )
    for number in range(ADMITTED):
        state.submit(_admitted(rng, number, rng.choice(names)), now=0.0)
    for number in range(PENDING):
        requests = _requests(rng.choice((1, 2, 4, 8)))
        state.submit(
            Workload(
                f"n/p{number}",
                queue=f"n/{rng.choice(names)}",
                podsets=(PlacementRequest("main", 1, requests),),
                priority=rng.randrange(4),
                created=float(ADMITTED + number),
            ),
            now=0.0,
        )
    return state


def _admitted(rng: random.Random, number: int, queue: str) -> Workload:
    requests, flavor = _requests(rng.choice((1, 1, 2, 2, 4))), rng.choice(FLAVORS)
    made = Workload(
        f"n/a{number}",
        queue=f"n/{queue}",
        podsets=(PlacementRequest("main", 1, requests),),
        priority=rng.randrange(3),
        created=float(number),
    )
    made.admission = Admission(queue, (PodSetAdmission("main", 1, dict.fromkeys(requests, flavor), requests),))
    made.conditions["QuotaReserved"] = WorkloadCondition(status=True, at=float(number))
    return made


def _requests(gpus: int) -> dict[str, int]:
    return {"cpu": gpus * 10_000, GPU: gpus}


def _cycle_s(seed: int, *, fair: bool) -> float:
    state, best = busy(seed, fair=fair), float("inf")
    for _ in range(3):
        started_at = process_time()
        cycle(state, now=1e6)
        best = min(best, process_time() - started_at)
    return best


def _simulation_s(seed: int) -> float:
    trace = generated("philly", jobs=JOBS, gpus=NODES * NODE_GPUS, teams=8, load=1.0, seed=seed)
    started_at = process_time()
    GovernanceSimulation(trace, nodes=NODES, governance=True, topology=True, seed=seed).run()
    return process_time() - started_at
