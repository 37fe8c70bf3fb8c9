"""The scenarios in virtual time with their bounds: the one table of them, which docs/simulation.md shows.

`python -m scripts.benches.scenarios` writes it there; a test fails where the page has another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from scripts.benches.case import Case, Request
from scripts.benches.cases import (
    blackhole,
    capacity,
    chaos,
    fair,
    incast,
    jitter,
    messages,
    permutation,
    roce,
    virtual,
    wild,
)
from scripts.benches.outcome import Round, wanted
from scripts.harness.errors import BenchError
from srd.sim.errors import SimulationError

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

    def seeds(request: Request) -> Sequence[int]:
        return SEEDS if request.seed is None else (request.seed,)

    def rounds(request: Request) -> Iterator[Round]:
        for seed in seeds(request):
            try:
                yield measure(seed, request.seconds or seconds)
            except (BenchError, SimulationError) as error:
                raise BenchError(f"seed {seed}: {error}") from None

    options = frozenset({"seed", "seconds"} if seconds else {"seed"})
    return Case(name, happens, "virtual", rounds, wanted(*bounds), options, planned=lambda request: len(seeds(request)))


VIRTUAL: Final = (
    scenario("incast", "48 senders x 2 MB to one 100 Gbit/s port",
             partial(incast.measure, senders=48, message_bytes=2_000_000),
             "max_over_ideal_ratio <= 1.1", "spread_ratio <= 1.3"),
    scenario("incast-1000", "1,000 senders x 64 KB",
             partial(incast.measure, senders=1000, message_bytes=64_000),
             "max_over_ideal_ratio <= 1.5", "spread_ratio <= 2", "resent_fraction <= 0.1"),
    scenario("incast-8192", "8,192 senders x 64 KB; a run needs 0.7 GB of memory",
             partial(incast.measure, senders=8192, message_bytes=64_000, leaves=64), "senders_done >= 8192"),
    scenario("permutation", "8 hosts to 8, twice the capacity; beside it one path", permutation.measure,
             "median_over_ideal_ratio <= 1.1", "max_over_ideal_ratio <= 1.5"),
    scenario("unequal", "paths of very different length; a receiver's clock that drifts and steps", capacity.unequal,
             "unequal_capacity_fraction >= 0.78", "drift_ok >= 1", seconds=3.0),
    scenario("slow-path", "one of 8 paths at a tenth of the rate", capacity.slow_path,
             "capacity_fraction >= 0.95", seconds=1.0),
    scenario("loss", "0.1, 1, 5, 10 % on all paths, acks too", capacity.loss,
             "capacity_fraction_1pct >= 0.95", "capacity_fraction_10pct >= 0.85", seconds=1.0),
    scenario("ecn", "4 links that mark packets which will wait for more than 0.6 ms; beside it the same without marks",
             capacity.ecn, "queue_ratio <= 0.7", "capacity_fraction >= 0.95", seconds=1.0),
    scenario("blackhole", "1, then 3 of 4 paths die silently", blackhole.measure,
             "stall_rtts <= 3.1", "failed_requests <= 0", "repaired_s <= 1"),
    scenario("jitter", "50 ms +- 1 and 10 ms", jitter.measure, "spurious_fraction < 0.01", seconds=2.0),
    scenario("long-fat", "10 Gbit/s, 100 ms, one peer", capacity.long_fat, "capacity_fraction >= 0.9", seconds=0.5),
    scenario("wild", "beside models of TCP (CUBIC, BBR); alone by jitter, over a WAN with 0 and 1 % loss, by satellite",
             wild.measure, *wild.BOUNDS),
    scenario("fair", "2, 8, 32 flows on one bottleneck", fair.measure,
             "jain_index >= 0.95", "median_queue_bdp <= 1"),
    scenario("messages", "one packet lost in every tenth of 1,000 messages", messages.measure,
             "undisturbed_ratio <= 1.05"),
    scenario("roce", "RoCE with PFC and DCQCN, IRN, TCP and SRD on the same switches: docs/roce.md",
             roce.measure, *roce.BOUNDS),
    Case("chaos", "all failures, by seed, to sends, writes, reads; `--runs N`: so many seeds, as one round",
         "virtual", chaos.measure, wanted("violations <= 0"), frozenset({"seed", "runs"})),
    scenario("virtual", "the backend alone", virtual.measure, "packet_hops_per_second >= 100000"),
)  # fmt: skip


def table() -> str:
    """Return the table of the page, in Markdown."""
    rows = ["| case | what happens | bounds |", "|---|---|---|"]
    for case in VIRTUAL:
        bounds = ", ".join(f"`{each.figure}` {each.relation} {each.limit:,g}" for each in case.wanted)
        rows.append(f"| `{case.name}` | {case.summary} | {bounds} |")
    return "\n".join(rows) + "\n"


def with_table(page: str) -> str:
    """Return a page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
