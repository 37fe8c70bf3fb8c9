"""The scenarios in virtual time with their bounds: the one table of them, which docs/simulation.md shows.

`python -m scripts.benches.scenarios` writes it there; a test fails where the page has another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from scripts.benches.case import Case, CaseOptions
from scripts.benches.cases import (
    chaos,
    messages,
    roce,
    virtual,
)
from scripts.benches.outcome import Round, wanted
from scripts.harness.errors import BenchError
from srd.sim.errors import SimulationError
from srd.sim.experiments.scenario import read_scenario

SEEDS: Final = (1, 2, 3, 4, 5)
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "simulation.md"
BEGIN: Final = "<!-- Written by scripts/benches/scenarios.py -->\n"
END: Final = "<!-- End -->\n"


def scenario(
    name: str, happens: str, measure: Callable[[int, float], Round], *bounds: str, seconds: float = 0.0
) -> Case:
    """Return a case with a round for each seed.

    `measure` takes a seed and how long to measure, in virtual time. `seconds`: by default; 0: its messages decide.
    """

    def seeds(request: CaseOptions) -> Sequence[int]:
        return SEEDS if request.seed is None else (request.seed,)

    def rounds(request: CaseOptions) -> Iterator[Round]:
        for seed in seeds(request):
            try:
                yield measure(seed, request.seconds or seconds)
            except (BenchError, SimulationError) as error:
                raise BenchError(f"seed {seed}: {error}") from None

    options = frozenset({"seed", "seconds"} if seconds else {"seed"})
    return Case(name, happens, "virtual", rounds, wanted(*bounds), options, planned=lambda request: len(seeds(request)))


def from_file(name: str) -> Case:
    """Return the case of a scenario that `srd sim` runs, too."""
    read = read_scenario(name)

    def measure(seed: int, seconds: float) -> Round:
        return Round(seed, read.figures(seed=seed, seconds=seconds))

    return scenario(
        name,
        read.happens,
        measure,
        *(f"{each.figure} {each}" for each in read.bounds),
        seconds=read.seconds,
    )


VIRTUAL: Final = (
    from_file("incast"),
    from_file("incast-1000"),
    from_file("incast-8192"),
    from_file("permutation"),
    from_file("unequal"),
    from_file("slow-path"),
    from_file("slow-links"),
    from_file("loss"),
    from_file("ecn"),
    from_file("blackhole"),
    from_file("jitter"),
    from_file("long-fat"),
    from_file("wild"),
    from_file("fair"),
    scenario("messages", "one packet lost in every tenth of 1,000 messages", messages.measure,
             "undisturbed_ratio <= 1.05"),
    scenario("roce", "RoCE with PFC and DCQCN, IRN, TCP and SRD on the same switches: docs/roce.md",
             roce.measure, *roce.BOUNDS),
    Case("chaos", "all failures, by seed, to sends, writes, reads; `--runs N`: so many seeds, as one round",
         "virtual", chaos.measure, wanted("violations <= 0"), frozenset({"seed", "runs"})),
    scenario("virtual", "the backend alone", virtual.measure, "packet_hops_per_second >= 100000"),
)  # fmt: skip


def table() -> str:
    rows = ["| case | what happens | bounds |", "|---|---|---|"]
    for case in VIRTUAL:
        bounds = ", ".join(f"`{each.figure}` {each.relation} {each.limit:,g}" for each in case.wanted)
        rows.append(f"| `{case.name}` | {case.summary} | {bounds} |")
    return "\n".join(rows) + "\n"


def with_table(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
