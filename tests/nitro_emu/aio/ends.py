"""Two queue pairs of two devices that know each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nitro_emu.aio import Device, QpSettings, QueuePair, Remote
from tests.patience import PATIENCE_S


@dataclass
class End:
    device: Device
    qp: QueuePair
    to: Remote
    """The other end."""


@asynccontextmanager
async def ends(
    run_dir: Path, *, one: QpSettings | None = None, two: QpSettings | None = None, adaptive_poll_s: float = 0.0005
) -> AsyncIterator[tuple[End, End]]:
    """Open both devices of a card, each with a queue pair; all within PATIENCE_S."""
    async with (
        asyncio.timeout(2 * PATIENCE_S),
        await Device.open("efa_0", directory=run_dir, adaptive_poll_s=adaptive_poll_s) as first,
        await Device.open("efa_1", directory=run_dir, adaptive_poll_s=adaptive_poll_s) as second,
        await first.queue_pair(one) as here,
        await second.queue_pair(two) as there,
    ):
        yield (
            End(first, here, await first.remote(there.address)),
            End(second, there, await second.remote(here.address)),
        )
