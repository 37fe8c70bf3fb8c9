"""The two applications of a measurement on cards: `efa-bw` and `efa-pingpong` (nitro_emu.efa.perf), which print events.

Each runs as a process by scripts/harness/worker.py. `sweep`: what is measured, as `srd.perf.sweep.plan.encode` has it.
"""

from __future__ import annotations

import gc
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from nitro_emu.efa.perf.carrier import Verb
from nitro_emu.efa.perf.end import End
from nitro_emu.efa.perf.session import Open, run_client, run_server
from scripts.benches.card.cards import TwoCards, device
from scripts.harness.client_server import Event, run_both
from scripts.harness.events import emit
from scripts.harness.perf import START_S
from scripts.harness.worker import worker
from srd.perf.sweep.client import Row
from srd.perf.sweep.plan import Operation, Sweep, encode, sweep_untrusted

MODULE: Final = "scripts.benches.card.applications"


def _opened(*, run_dir: str, vf: int, events: bool) -> Open:
    return partial(End, device=device(vf), run_dir=Path(run_dir), events=events)


def _start(_end: End) -> None:
    """Leave the objects of the start out of garbage collections."""
    gc.collect()
    gc.freeze()


async def serve(*, run_dir: str, vf: int, latency: bool, events: bool) -> int:
    """Serve one client."""
    opened = _opened(run_dir=run_dir, vf=vf, events=events)
    _, _, counts = await run_server(0, latency=latency, opened=opened, on_listening=_listening, on_start=_start)
    emit("served", messages=sum(counts))
    return 0


def _listening(port: int) -> None:
    emit("listening", port=port)


async def measure(*, run_dir: str, vf: int, events: bool, host: str, port: int, sweep: dict[str, Any]) -> int:
    """Measure, and print the row."""
    plan = sweep_untrusted(sweep)
    verb = Verb.WRITE if plan.operation is Operation.WRITE else Verb.SEND
    opened = _opened(run_dir=run_dir, vf=vf, events=events)
    await run_client((host, port), plan, verb, opened=opened, on_start=_start, on_row=_measured)
    return 0


def _measured(row: Row) -> None:
    emit("measured", **asdict(row.figures), cpu_s=row.cpu_s + row.remote_cpu_s)


def commands(cards: TwoCards, sweep: Sweep, *, vf: int, events: bool) -> tuple[list[str], partial[list[str]]]:
    """Return the server's command line, and what makes the client's of the server's `host` and `port`."""
    latency = sweep.operation is Operation.LATENCY
    common = {"vf": vf, "events": events}
    server = worker(MODULE, "serve", run_dir=str(cards.b.run_dir), latency=latency, **common)
    return server, partial(worker, MODULE, "measure", run_dir=str(cards.a.run_dir), sweep=encode(sweep), **common)


def measured(cards: TwoCards, sweep: Sweep, *, events: bool = False) -> Event:
    """Run both applications at the first device of each card; return the client's row.

    `events`: they sleep until the card has something for them, instead of polling. Raises BenchError, also for a
    datagram that was dropped at a card's sockets: such a run measures the host's buffers.
    """
    server, client = commands(cards, sweep, vf=0, events=events)
    _, row = run_both(
        cards.pair,
        server=server,
        client=lambda host, port: client(host=host, port=port),
        bound_s=START_S + 10 * sweep.seconds,
    )
    cards.require_no_drops()
    return row
