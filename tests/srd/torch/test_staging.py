"""srd.torch: tensors of a device pass in chunks through pinned memory, each when its copy is done, and side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import pytest

from tests.patience import PATIENCE_S, until
from tests.srd.torch.devices import HeldDevice, HostDevice
from tests.srd.torch.ranks import GroupError, Mesh, Staging, dist, kinds, memory, run, staging, torch

CHUNK = 4096
HAS_GPU = torch.version.cuda is not None and Path("/dev/nvidia0").exists()
"""Asking CUDA itself would keep it from forked ranks."""


class Pipeline:
    """A collective of one rank, through a stage whose device the test holds: its work is to add one to each byte."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, chunks: int, bytes_more: int = 0) -> None:
        monkeypatch.setattr(staging, "SLOT_BYTES", CHUNK)
        self.device = HeldDevice()
        self.mesh = Mesh(None, rank=0, hosts=["192.0.2.1"], leaves=[""])
        self.staging = Staging(self.mesh, cast(Any, self.device))
        self.tensor = (torch.arange(chunks * CHUNK + bytes_more) % 200).to(torch.uint8)
        self.wanted = self.tensor + 1
        self.worked: list[bytes] = []
        self.errors: list[GroupError | None] = []
        block = memory.block_of(self.tensor)

        async def body(op: Any) -> None:
            await self.staging.run(op, self._work, sources=[block], results=[block], after=self.device.mark())

        self.mesh.run("all_reduce", body, timeout_s=PATIENCE_S, done=self.errors.append)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.device.let_go()

    async def _work(self, _: object, sources: Sequence[Any], results: Sequence[Any]) -> None:
        self.worked.append(bytes(sources[0].view))
        elements = results[0].elements(torch.uint8)
        torch.add(sources[0].elements(torch.uint8), 1, out=elements)

    def chunk(self, index: int) -> bytes:
        return bytes((self.wanted[index * CHUNK : (index + 1) * CHUNK] - 1).numpy())


async def test_a_chunk__is_sent_when_its_copy_is_done_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pipeline(monkeypatch, chunks=2, bytes_more=100) as pipeline:
        device = pipeline.device
        await until(lambda: len(device.outs) == 3)  # all of them begin at once
        assert not pipeline.worked
        for index in range(3):
            device.outs[index].end()
            await until(partial(device.has_begun, ins=index + 1))  # the first goes in while others are on their way
            assert pipeline.worked == [pipeline.chunk(each) for each in range(index + 1)]
        assert not pipeline.errors, "it has not ended before the last copy has"
        for copied in device.ins:
            copied.end()
        await until(lambda: pipeline.errors == [None])
        assert torch.equal(pipeline.tensor, pipeline.wanted)


async def test_a_slot__is_used_again_when_its_last_copy_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pipeline(monkeypatch, chunks=staging.SLOTS + 2) as pipeline:
        device = pipeline.device
        await until(lambda: len(device.outs) == staging.SLOTS)
        for copied in list(device.outs):
            copied.end()
        await until(lambda: len(device.ins) == staging.SLOTS)
        assert len(device.outs) == staging.SLOTS
        device.ins[0].end()
        await until(lambda: len(device.outs) == staging.SLOTS + 1)
        device.ins[1].end()
        await until(lambda: len(device.outs) == staging.SLOTS + 2)
        for copied in device.outs[staging.SLOTS :]:
            copied.end()
        await until(lambda: len(device.ins) == staging.SLOTS + 2)
        for copied in device.ins[2:]:
            copied.end()
        await until(lambda: pipeline.errors == [None])
        assert torch.equal(pipeline.tensor, pipeline.wanted)


@pytest.mark.parametrize("direction", ["outs", "ins"])
async def test_a_copy_that_fails__ends_the_group(monkeypatch: pytest.MonkeyPatch, direction: str) -> None:
    with Pipeline(monkeypatch, chunks=2) as pipeline:
        device = pipeline.device
        await until(lambda: len(device.outs) == 2)
        if direction == "ins":
            device.outs[0].end()
            await until(lambda: bool(device.ins))
        getattr(device, direction)[0].end(RuntimeError("CUDA error: out of order"))
        await until(lambda: bool(pipeline.errors))
        assert str(pipeline.errors[0]) == "all_reduce: RuntimeError('CUDA error: out of order')"
        assert pipeline.mesh.error is pipeline.errors[0]
        device.outs[1].end()


async def test_a_group_that_fails__waits_for_no_copy_and_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pipeline(monkeypatch, chunks=2) as pipeline:
        device = pipeline.device
        await until(lambda: len(device.outs) == 2)
        pipeline.mesh.fail(GroupError("rank 1 at 192.0.2.2 is lost"))
        await until(lambda: bool(pipeline.errors))
        assert str(pipeline.errors[0]) == "rank 1 at 192.0.2.2 is lost"
        pipeline.staging.close()
        device.outs[0].end()
        await asyncio.to_thread(device.outs[0].synchronize)
        assert not device.unpinned.is_set()
        device.outs[1].end()
        assert await asyncio.to_thread(device.unpinned.wait, PATIENCE_S)
        assert not pipeline.worked


def with_stage(body: Callable[..., None], *arguments: Any) -> None:
    """Have the CPU's tensors pass through a stage, in chunks that are sent at once, and others."""
    kinds["cpu"] = cast(Any, HostDevice)
    monkeypatch = pytest.MonkeyPatch()  # of this process, which is a rank
    monkeypatch.setattr(staging, "SLOT_BYTES", 400 << 10)
    body(*arguments)
    assert dist.group.WORLD._stages, "a stage was used"


def all_collectives(device: str) -> None:
    """Whole numbers, which are exact whatever the order of sums."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for length in (0, 1, 1000, 100_003, 600_001):
        given = [((torch.arange(length) * (each + 3) + each) % 5) for each in range(world)]
        total = sum(given[1:], given[0])
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            tensor = given[rank].to(device, dtype, copy=True)
            waiting = dist.all_reduce(tensor, async_op=True)
            waiting.wait()
            assert torch.equal(tensor.cpu(), total.to(dtype)), (length, dtype)
            assert waiting.get_future().wait()[0] is tensor
        mine = given[rank].to(device, copy=True)
        gathered = torch.empty(world * length, dtype=mine.dtype, device=device)
        dist.all_gather_single(gathered, mine)
        assert torch.equal(gathered.cpu(), torch.cat(given))
        part = torch.empty_like(mine)
        dist.reduce_scatter_single(part, torch.cat([mine + each for each in range(world)]))
        assert torch.equal(part.cpu(), total + world * rank)
        for root in range(world):
            sent = given[rank].to(device, copy=True)
            dist.broadcast(sent, root)
            assert torch.equal(sent.cpu(), given[root])
        transposed = torch.stack([given[rank], given[rank] + 1]).to(device).t()  # not contiguous
        dist.all_reduce(transposed)
        assert torch.equal(transposed.cpu(), torch.stack([total, total + world]).t())
        to_root = given[rank].to(device, copy=True)
        dist.reduce(to_root, 0)
        assert torch.equal(to_root.cpu(), given[rank] if rank else total)


def ddp(device: str) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(300, 1200), torch.nn.ReLU(), torch.nn.Linear(1200, 8)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    torch.manual_seed(1 + dist.get_rank())
    losses = []
    for _ in range(5):
        given = torch.randn(32, 300).to(device)
        loss = (model(given) - given[:, :8]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    digest = torch.cat([each.detach().cpu().flatten() for each in model.parameters()])
    shown = [torch.empty_like(digest) for _ in range(dist.get_world_size())]
    dist.all_gather(shown, digest)
    assert all(torch.equal(each, digest) for each in shown), "all ranks have the same parameters"


@pytest.mark.parametrize("world", [2, 3])
def test_all_collectives__through_a_stage(world: int, tmp_path: Path) -> None:
    run(with_stage, all_collectives, "cpu", world=world, store=tmp_path / "store")


def test_ddp__through_a_stage(tmp_path: Path) -> None:
    run(with_stage, ddp, "cpu", world=2, store=tmp_path / "store")


@pytest.mark.skipif(not HAS_GPU, reason="this machine has no GPU of NVIDIA's, or torch is without CUDA")
@pytest.mark.parametrize("body", [all_collectives, ddp])
def test_a_gpu__that_two_ranks_share(body: Callable[[str], None], tmp_path: Path) -> None:
    run(body, "cuda:0", world=2, store=tmp_path / "store")
