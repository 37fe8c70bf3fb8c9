"""Collectives of a device's tensors: in chunks, through pinned memory of the host.

1. A stage is a region of `SLOTS` slots that the device copies to and from by itself. A chunk has one slot, from the
   first copy out of the device until the last one into it is done.
2. A chunk is a collective of its own, numbered like any other: all ranks cut alike. Up to `SLOTS` of them are on their
   way at once, so that one is copied out, while another one passes through the network, and a third is copied in.
3. What a chunk sends is sent when the copy out of the device is done, and not before; waiting for that is a thread's.
4. Slots are given in the order of chunks, so the first that is not done always has one at every rank.
5. A failure ends the waiting at once. The memory stays until the device has let go of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import torch

from devmem import Region
from netns.base.tasks import Tasks
from srd.torch.device import CudaDevice, DeviceEvent
from srd.torch.memory import Block, block_of
from srd.torch.mesh import Collective, Mesh

SLOT_BYTES: Final = 4 << 20
"""Some pieces of the network's, and a copy of a third of a millisecond over PCIe."""
SLOTS: Final = 4
ALIGNMENT: Final = 64
"""More than the longest element."""

StagedWork = Callable[[Collective, Sequence[Block], Sequence[Block]], Coroutine[Any, Any, None]]
"""A collective of blocks that are sent, and blocks that are received into; equally long, all of them."""
Part = tuple[int, Any]
"""A place in a slot, and bytes of the device that belong there."""


class Staging:
    """The stage of one group for one device. Used on the loop's thread alone."""

    def __init__(self, mesh: Mesh, device: CudaDevice) -> None:
        """Raises devmem.CudaError or RegionError when there is no memory that the device can be given."""
        self._mesh, self._device = mesh, device
        region = Region(SLOTS * SLOT_BYTES, name="srd-stage")
        self._pinned = device.pin(region)
        self._slots: asyncio.Queue[Any] = asyncio.Queue()
        for slot in torch.frombuffer(region.view(0, length=region.size_bytes), dtype=torch.uint8).split(SLOT_BYTES):
            self._slots.put_nowait(slot)
        self._ends = Tasks()

    async def run(
        self,
        op: Collective,
        work: StagedWork,
        *,
        sources: Sequence[Block],
        results: Sequence[Block],
        after: DeviceEvent,
    ) -> None:
        """Do a collective of blocks of the device's memory, all equally long; `after`: the program is done with them.

        Raises GroupError, and RuntimeError of the device.
        """
        blocks = [*sources, *results]
        places = {block.address: place for place, block in enumerate({each.address: each for each in blocks}.values())}
        part = SLOT_BYTES // len(places) // ALIGNMENT * ALIGNMENT
        starts = range(0, max(blocks[0].length, 1), part)
        ops = [op, *(self._mesh.collective() for _ in starts[1:])]
        tasks = []
        for chunk, start in zip(ops, starts, strict=True):
            outs, ins = (
                [(places[each.address] * part, _bytes(each)[start : start + part]) for each in side]
                for side in (sources, results)
            )
            task = self._chunk(chunk, work, outs=outs, ins=ins, after=after)
            tasks.append(asyncio.get_running_loop().create_task(task))

        def stop() -> None:
            for task in tasks:
                task.cancel()

        self._mesh.stop_waiting = stop
        try:
            await asyncio.gather(*tasks)
        except BaseException as error:
            stop()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._ends.start(self._settled(sources, results))
            if isinstance(error, asyncio.CancelledError) and self._mesh.error is not None:
                raise self._mesh.error from None
            raise
        finally:
            self._mesh.stop_waiting = None

    async def _chunk(
        self, op: Collective, work: StagedWork, *, outs: list[Part], ins: list[Part], after: DeviceEvent
    ) -> None:
        """Do a part of a collective."""
        slot = await self._slots.get()
        sent, received = ([(slot[at : at + part.numel()], part) for at, part in side] for side in (outs, ins))
        await _done([self._device.copy_out(part, staged, after=after) for staged, part in sent])
        await work(op, [block_of(staged) for staged, _ in sent], [block_of(staged) for staged, _ in received])
        await _done([self._device.copy_in(staged, part, after=after) for staged, part in received])
        self._slots.put_nowait(slot)

    async def _settled(self, *_memory: object) -> None:
        """Return when no copy is on its way; keeps memory until then."""
        await asyncio.get_running_loop().run_in_executor(None, self._device.synchronize)

    def close(self) -> None:
        """Give the memory back, once no copy uses it."""
        self._ends.start(self._close())

    async def _close(self) -> None:
        await self._settled()
        self._pinned.close()


def _bytes(block: Block) -> Any:
    """Return a block of a contiguous tensor as a tensor of bytes, where it lies."""
    whole: Any = block.owner
    at = block.address - whole.data_ptr()
    return whole.detach().reshape(-1).view(torch.uint8)[at : at + block.length]


async def _done(copies: Sequence[DeviceEvent]) -> None:
    for copy in copies:
        await asyncio.get_running_loop().run_in_executor(None, copy.synchronize)
