"""A worker process: `python -m scripts.benches.torture.worker DIRECTORY WORKER INCARNATION`; WORKER 0 receives.

DIRECTORY has scenario.json and part.WORKER.INCARNATION.json; the worker writes its journal there. Its last
entries report the memory and descriptors that it has not released.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from pydantic import TypeAdapter

from netns.base.build import BUILD
from scripts.benches.torture.files import receive_files, send_files
from scripts.benches.torture.journal import Journal
from scripts.benches.torture.layout import journal_name
from scripts.benches.torture.local import Footprint, Orders, start_near_wrap
from scripts.benches.torture.plans import TortureScenario
from scripts.benches.torture.receiver import TortureReceiver
from scripts.benches.torture.sabotage import SABOTAGES
from scripts.benches.torture.sender import TortureSender

Role = Callable[[Orders], Awaitable[None]]


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    directory, worker, incarnation = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    scenario = TypeAdapter(TortureScenario).validate_json((directory / "scenario.json").read_bytes())
    part = json.loads((directory / f"part.{worker}.{incarnation}.json").read_bytes())
    if name := part["sabotage"]:
        SABOTAGES[name]()
    journal = Journal(directory / journal_name(worker, incarnation=incarnation))
    journal.note("pid", os.getpid(), BUILD)
    plan = scenario.senders[worker - 1].endpoint if worker else scenario.receiver.endpoint
    start_near_wrap(plan)
    role = _role(scenario, worker, incarnation, directory, journal, part)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if plan.uvloop else None) as runner:
        runner.run(_measured(role, journal))
    journal.note("done")


def _role(
    scenario: TortureScenario, worker: int, incarnation: int, directory: Path, journal: Journal, part: dict[str, Any]
) -> Role:
    host, port = part["host"], part["port"]

    async def run(orders: Orders) -> None:
        if scenario.files:
            if worker:
                await send_files(scenario, directory=directory, journal=journal, orders=orders, host=host)
            else:
                await receive_files(scenario, directory=directory, journal=journal, orders=orders, host=host)
        elif worker:
            await TortureSender(
                scenario, worker, incarnation=incarnation, directory=directory, journal=journal, orders=orders
            ).run(host)
        else:
            options: dict[str, Any] = {"directory": directory, "journal": journal, "orders": orders}
            receiver = TortureReceiver(scenario, incarnation=incarnation, attackers=part["attackers"], **options)
            await receiver.run(host, port=port)

    return run


async def _measured(role: Role, journal: Journal) -> None:
    orders = Orders()
    before = Footprint.now()
    await role(orders)
    await asyncio.sleep(0.1)  # lets the loop close its transports
    after = Footprint.now()
    orders.close()
    left = [name for name in after.descriptors if name not in before.descriptors]
    journal.note("left", after.anonymous_bytes - before.anonymous_bytes, after.regions_bytes, left)


if __name__ == "__main__":
    main()
