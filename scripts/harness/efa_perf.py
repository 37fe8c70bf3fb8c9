"""`efa-bw` and `efa-pingpong` (nitro_emu.efa.perf) as processes that print events, for measurements that they lack.

`sweep`: what is measured, as `srd.perf.sweep.plan.encode` has it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from netns.base.output import emit
from nitro_emu.efa.perf.carrier import Verb
from nitro_emu.efa.perf.end import QueuePairEnd
from nitro_emu.efa.perf.session import run_client, run_server
from scripts.harness.worker import worker
from srd.perf.sweep.client import SizeRow
from srd.perf.sweep.plan import Operation, Sweep, encode, sweep_untrusted

_MODULE: Final = "scripts.harness.efa_perf"


@dataclass(frozen=True, slots=True)
class CardDevice:
    run_dir: Path
    name: str

    def to_dict(self) -> dict[str, str]:
        return {"run_dir": str(self.run_dir), "device": self.name}


def commands(
    server: CardDevice, client: CardDevice, sweep: Sweep, *, events: bool = False, naps: bool = True
) -> tuple[list[str], Callable[[str, int], list[str]]]:
    """Return the server's command line, and what makes the client's of the server's host and port.

    The server's events are `listening {port}` and `served`, the client's `measured` with the figures of a row.
    `events`: both sleep until the card has something for them, instead of polling. `naps`: as of `QueuePairEnd`.
    """
    waiting = {"events": events, "naps": naps}
    is_latency = sweep.operation is Operation.LATENCY
    serving = worker(_MODULE, "serve", **server.to_dict(), latency=is_latency, **waiting)
    measuring = partial(worker, _MODULE, "measure", **client.to_dict(), sweep=encode(sweep), **waiting)
    return serving, lambda host, port: measuring(host=host, port=port)


async def serve(*, run_dir: str, device: str, latency: bool, events: bool, naps: bool) -> int:
    opened = partial(QueuePairEnd, device=device, run_dir=Path(run_dir), events=events, naps=naps)
    await run_server(("", 0), latency=latency, opened=opened, on_listening=_listening, on_start=_start)
    emit("served")
    return 0


async def measure(
    *, run_dir: str, device: str, host: str, port: int, sweep: dict[str, Any], events: bool, naps: bool
) -> int:
    """Measure, and print the row."""
    plan = sweep_untrusted(sweep)
    verb = Verb.WRITE if plan.operation is Operation.WRITE else Verb.SEND
    opened = partial(QueuePairEnd, device=device, run_dir=Path(run_dir), events=events, naps=naps)
    await run_client((host, port), plan, verb, opened=opened, on_start=_start, on_row=_measured)
    return 0


def _listening(port: int) -> None:
    emit("listening", port=port)


def _start(_end: QueuePairEnd) -> None:
    """Leave the objects of the start out of garbage collections."""
    gc.collect()
    gc.freeze()


def _measured(row: SizeRow) -> None:
    emit("measured", **asdict(row.figures), cpu_s=row.cpu_s + row.remote_cpu_s)
