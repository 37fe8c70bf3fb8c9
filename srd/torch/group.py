"""The process group: torch's calls, as collectives on the loop's thread.

Method names, arguments and their order are those of `torch.distributed.ProcessGroup`, for callers in Python and in C++
(PyProcessGroup.hpp). A tensor that is not contiguous is copied before and after; complex ones are reduced as pairs.
"""

from __future__ import annotations

import atexit
import itertools
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

import torch
from torch.distributed import ProcessGroup, ReduceOp

from srd.torch import collectives, staging
from srd.torch.device import KINDS, CudaDevice, DeviceEvent, common_device
from srd.torch.group_error import GroupError
from srd.torch.loop import loop_thread
from srd.torch.memory import Block, Reduction, block_of
from srd.torch.mesh import Body, Collective, Mesh, Receive
from srd.torch.rendezvous import Rendezvous, join, listen, own_host, own_leaf
from srd.torch.staging import Staging
from srd.torch.work import Work

NAME: Final = "srd"
CLOSE_S: Final = 5.0
"""Time for closing: `EndpointConfig.close_timeout_s`, and what a busy loop needs besides."""


def _check(tensors: Sequence[Any]) -> None:
    """Raise for a tensor that this backend does not take."""
    for tensor in tensors:
        if tensor.device.type != "cpu" and tensor.device.type not in KINDS:
            raise GroupError(f"device: {tensor.device} is not supported by the backend srd; move the tensor to the CPU")
        if tensor.layout != torch.strided:
            raise GroupError(f"layout: {tensor.layout} is not supported by the backend srd; use dense tensors")


def _on_host(tensor: Any) -> Any:
    """Return a tensor without gaps in this process's memory; itself, if it is one. Waits for its device."""
    return tensor if tensor.device.type == "cpu" and tensor.is_contiguous() else tensor.detach().cpu().contiguous()


class Tensors:
    """Tensors in this process's memory, without gaps; `write_back` copies what was received to those that were not.

    Tensors of a `device` stay there: it copies itself, through a stage.
    """

    def __init__(self, tensors: Sequence[Any], *, device: CudaDevice | None = None) -> None:
        _check(tensors)
        self._given = tensors
        self.dense = [tensor if device is not None else _on_host(tensor) for tensor in tensors]
        self.blocks = [block_of(tensor) for tensor in self.dense]

    @property
    def write_back(self) -> Callable[[], None] | None:
        """What is to be called at the end; None: nothing."""
        if all(dense is given for dense, given in zip(self.dense, self._given, strict=True)):
            return None
        return self._copy

    def _copy(self) -> None:
        with torch.no_grad():
            for dense, given in zip(self.dense, self._given, strict=True):
                if dense is not given:
                    given.detach().copy_(dense)


Stage = tuple[CudaDevice, DeviceEvent]
"""A device, and the point that the caller's work there had come to."""


def _stage(device: CudaDevice | None) -> Stage | None:
    return None if device is None else (device, device.mark())


def _op(options: Any) -> Any:
    """Return the reduction of a call; a sum, if it does not say."""
    return ReduceOp.SUM if options is None else getattr(options, "reduceOp", options)


def _real(tensor: Any) -> Any:
    """Return a tensor that reductions are defined for, over the same memory."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


class ProcessGroupSRD(ProcessGroup):  # type: ignore[misc] # torch has no types here
    """One group of ranks on one endpoint."""

    def __init__(self, mesh: Mesh, *, timeout: timedelta) -> None:
        super().__init__(mesh.rank, mesh.size)
        self._mesh = mesh
        self._loop = loop_thread()
        self._timeout_s = timeout.total_seconds()
        self._name, self._desc = "", ""
        self._closed = False
        self._stages: dict[CudaDevice, Staging] = {}
        _open_groups.add(self)

    # -- what it is ---------------------------------------------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: D102, N802
        return NAME

    def getRank(self) -> int:  # noqa: D102, N802
        return self._mesh.rank

    def getSize(self) -> int:  # noqa: D102, N802
        return self._mesh.size

    def getGroupName(self) -> str:  # noqa: D102, N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: D102, N802
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: D102, N802
        return self._desc

    def setGroupDesc(self, desc: str) -> None:  # noqa: D102, N802
        self._desc = desc

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long a collective may take from now on."""
        self._timeout_s = timeout.total_seconds()

    @property
    def copied_bytes(self) -> int:
        """Payload bytes that were copied: small ones, those that came early, and those that land in tensors."""
        endpoint = self._mesh.endpoint
        received = endpoint.bytes_copied if endpoint is not None else 0
        return received + sum(link.copied_bytes for link in self._mesh.links.values())

    @property
    def written_bytes(self) -> int:
        """Payload bytes that others have written to registered tensors (`srd.torch.empty`); copied by SRD alone."""
        return sum(link.written_bytes for link in self._mesh.links.values())

    @property
    def kept_bytes(self) -> int:
        """What this rank keeps of the others' sends, and of collectives not called yet; bounded for each rank."""
        return sum(link.kept_bytes for link in self._mesh.links.values())

    # -- running ------------------------------------------------------------------------------------------------------

    def _seconds(self, options: Any) -> float:
        timeout = getattr(options, "timeout", None)
        return timeout.total_seconds() if timeout is not None and timeout > timedelta() else self._timeout_s

    def _run(self, name: str, body: Body, results: Sequence[Any], *, options: Any, into: Tensors | None) -> Work:
        work = Work(results, after=None if into is None else into.write_back)
        seconds = self._seconds(options)

        def start() -> None:
            self._mesh.run(name, body, timeout_s=seconds, done=work.end)

        self._loop.loop.call_soon_threadsafe(start)
        return work

    async def _do(
        self,
        op: Collective,
        work: staging.StagedWork,
        *,
        sources: Sequence[Block],
        results: Sequence[Block],
        stage: Stage | None,
    ) -> None:
        """Do a collective of blocks where they lie, or through the stage of their device."""
        if stage is None:
            await work(op, sources, results)
            return
        device, after = stage
        if device not in self._stages:
            self._stages[device] = staged = Staging(self._mesh, device)
            self._mesh.closing.append(staged)
        await self._stages[device].run(op, work, sources=sources, results=results, after=after)

    # -- collectives --------------------------------------------------------------------------------------------------

    def broadcast(self, tensors: Sequence[Any], opts: Any) -> Work:  # noqa: D102
        device = common_device(tensors)
        data, stage = Tensors(tensors, device=device), _stage(device)
        is_root = self._mesh.rank == opts.rootRank

        async def work(op: Collective, sources: Sequence[Block], results: Sequence[Block]) -> None:
            await collectives.broadcast(op, [*sources, *results][0], root=opts.rootRank)

        async def body(op: Collective) -> None:
            block = [data.blocks[opts.rootTensor]]
            sources, results = (block, []) if is_root else ([], block)
            await self._do(op, work, sources=sources, results=results, stage=stage)

        return self._run("broadcast", body, tensors, options=opts, into=data)

    def allreduce(self, tensors: Sequence[Any], opts: Any = None) -> Work:  # noqa: D102
        return self._all_reduce("all_reduce", tensors, opts)

    def allreduce_coalesced(self, tensors: Sequence[Any], opts: Any = None) -> Work:  # noqa: D102
        return self._all_reduce("all_reduce_coalesced", tensors, opts)

    def _all_reduce(self, name: str, tensors: Sequence[Any], opts: Any) -> Work:
        device = common_device(tensors)
        data, stage = Tensors([_real(tensor) for tensor in tensors], device=device), _stage(device)
        reductions = [Reduction(_op(opts), tensor.dtype) for tensor in data.dense]

        async def body(op: Collective) -> None:
            for block, reduction in zip(data.blocks, reductions, strict=True):

                async def work(
                    op: Collective, _: object, results: Sequence[Block], reduction: Reduction = reduction
                ) -> None:
                    await collectives.all_reduce(op, results[0], reduction)

                await self._do(op, work, sources=[block], results=[block], stage=stage)
                op = self._mesh.collective()

        return self._run(name, body, tensors, options=opts, into=data)

    def reduce(self, tensors: Sequence[Any], opts: Any) -> Work:  # noqa: D102
        data = Tensors([_real(tensor) for tensor in tensors])
        reduction = Reduction(_op(opts), data.dense[0].dtype)

        async def body(op: Collective) -> None:
            await collectives.reduce(op, data.blocks[0], reduction, root=opts.rootRank)

        return self._run("reduce", body, tensors, options=opts, into=data)

    def allgather(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any = None) -> Work:  # noqa: D102
        return self._gather_pairs("all_gather", outputs, inputs, opts)

    def allgather_coalesced(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any = None) -> Work:  # noqa: D102
        by_input = [[row[index] for row in outputs] for index in range(len(inputs))]  # torch's lists are by rank here
        return self._gather_pairs("all_gather_coalesced", by_input, inputs, opts)

    def _gather_pairs(
        self, name: str, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any = None
    ) -> Work:
        """Gather each of `inputs` into the list of tensors, one for each rank, at its place in `outputs`."""
        own = Tensors(inputs)
        size = self._mesh.size
        results = Tensors([tensor for row in outputs for tensor in row])

        async def body(op: Collective) -> None:
            for index, block in enumerate(own.blocks):
                await collectives.all_gather(op, block, results.blocks[index * size : (index + 1) * size])
                op = self._mesh.collective()

        return self._run(name, body, [tensor for row in outputs for tensor in row], options=opts, into=results)

    def all_gather_single(self, output: Any, given: Any, opts: Any = None) -> Work:  # noqa: D102
        return self.all_gather_single_coalesced([output], [given], opts)

    def all_gather_single_coalesced(self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any = None) -> Work:  # noqa: D102
        device = common_device([*inputs, *outputs])
        own, results, stage = Tensors(inputs, device=device), Tensors(outputs, device=device), _stage(device)
        self._check_multiples(outputs, inputs)

        async def work(op: Collective, sources: Sequence[Block], results: Sequence[Block]) -> None:
            await collectives.all_gather(op, sources[0], results)

        async def body(op: Collective) -> None:
            for block, whole in zip(own.blocks, results.blocks, strict=True):
                length = block.length
                parts = [whole.part(rank * length, (rank + 1) * length) for rank in range(op.size)]
                await self._do(op, work, sources=[block], results=parts, stage=stage)
                op = self._mesh.collective()

        return self._run("all_gather_single", body, outputs, options=opts, into=results)

    def _check_multiples(self, large: Sequence[Any], small: Sequence[Any]) -> None:
        """Raise unless each large tensor has a small one's place for each rank."""
        for whole, part in zip(large, small, strict=True):
            if whole.numel() != part.numel() * self._mesh.size or whole.dtype != part.dtype:
                raise GroupError(
                    f"{whole.numel()} elements of {whole.dtype} are not {self._mesh.size} times "
                    f"{part.numel()} of {part.dtype}, one for each rank"
                )

    def gather(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any) -> Work:  # noqa: D102
        own = Tensors(inputs)
        is_root = self._mesh.rank == opts.rootRank
        results = Tensors(outputs[0] if is_root else [])

        async def body(op: Collective) -> None:
            blocks = results.blocks if is_root else None
            await collectives.gather(op, own.blocks[0], blocks, root=opts.rootRank)

        return self._run("gather", body, outputs[0] if is_root else inputs, options=opts, into=results)

    def scatter(self, outputs: Sequence[Any], inputs: Sequence[Sequence[Any]], opts: Any) -> Work:  # noqa: D102
        own = Tensors(outputs)
        is_root = self._mesh.rank == opts.rootRank
        sources = Tensors(inputs[0] if is_root else [])

        async def body(op: Collective) -> None:
            blocks = sources.blocks if is_root else None
            await collectives.scatter(op, own.blocks[0], blocks, root=opts.rootRank)

        return self._run("scatter", body, outputs, options=opts, into=own)

    def reduce_scatter(self, outputs: Sequence[Any], inputs: Sequence[Sequence[Any]], opts: Any = None) -> Work:  # noqa: D102
        results = Tensors([_real(tensor) for tensor in outputs])
        sources = [Tensors([_real(tensor) for tensor in row]) for row in inputs]
        reductions = [Reduction(_op(opts), tensor.dtype) for tensor in results.dense]

        async def body(op: Collective) -> None:
            for block, row, reduction in zip(results.blocks, sources, reductions, strict=True):
                await collectives.reduce_scatter(op, row.blocks, block, reduction)
                op = self._mesh.collective()

        return self._run("reduce_scatter", body, outputs, options=opts, into=results)

    def reduce_scatter_single(self, output: Any, given: Any, opts: Any = None) -> Work:  # noqa: D102
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    def reduce_scatter_single_coalesced(self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any = None) -> Work:  # noqa: D102
        self._check_multiples(inputs, outputs)
        device = common_device([*inputs, *outputs])
        results, sources = (Tensors([_real(each) for each in side], device=device) for side in (outputs, inputs))
        stage = _stage(device)
        reductions = [Reduction(_op(opts), tensor.dtype) for tensor in results.dense]

        async def body(op: Collective) -> None:
            for block, whole, reduction in zip(results.blocks, sources.blocks, reductions, strict=True):
                parts = whole.split(op.size, item_bytes=reduction.item_bytes)

                async def work(
                    op: Collective, sources: Sequence[Block], results: Sequence[Block], reduction: Reduction = reduction
                ) -> None:
                    await collectives.reduce_scatter(op, sources, results[0], reduction)

                await self._do(op, work, sources=parts, results=[block], stage=stage)
                op = self._mesh.collective()

        return self._run("reduce_scatter_single", body, outputs, options=opts, into=results)

    def alltoall(self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any = None) -> Work:  # noqa: D102
        results, sources = Tensors(outputs), Tensors(inputs)

        async def body(op: Collective) -> None:
            await collectives.exchange(op, sources.blocks, results.blocks)

        return self._run("all_to_all", body, outputs, options=opts, into=results)

    def all_to_all_single(
        self, output: Any, given: Any, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any
    ) -> Work:
        """Send a part of `given` to each rank, by its rows; without splits in equal parts."""
        result, source = Tensors([output]), Tensors([given])
        results = self._rows(result, output_splits)
        sources = self._rows(source, input_splits)

        async def body(op: Collective) -> None:
            await collectives.exchange(op, sources, results)

        return self._run("all_to_all_single", body, [output], options=opts, into=result)

    def _rows(self, tensors: Tensors, splits: Sequence[int]) -> list[Any]:
        (tensor,), (block,) = tensors.dense, tensors.blocks
        rows = tensor.size(0) if tensor.dim() else 1
        if not splits:
            if rows % self._mesh.size:
                raise GroupError(f"{rows} rows cannot be given to {self._mesh.size} ranks in equal parts; give splits")
            splits = [rows // self._mesh.size] * self._mesh.size
        if sum(splits) != rows or len(splits) != self._mesh.size:
            raise GroupError(f"splits: {list(splits)} are not {rows} rows for {self._mesh.size} ranks")
        row_bytes = block.length // rows if rows else 0
        edges = [sum(splits[:rank]) * row_bytes for rank in range(self._mesh.size + 1)]
        return [block.part(start, end) for start, end in itertools.pairwise(edges)]

    def barrier(self, opts: Any = None) -> Work:  # noqa: D102
        # DDP's C++ code takes a future's value as tensors: None would crash it.
        return self._run("barrier", collectives.barrier, [torch.zeros(1)], options=opts, into=None)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:  # noqa: ARG002, D102, FBT001, FBT002
        # An error names every rank that did not come, so there is nothing to choose.
        options = torch.distributed.BarrierOptions()
        if timeout is not None:
            options.timeout = timeout
        self._run("monitored_barrier", collectives.all_hear_all, [], options=options, into=None).wait()

    # -- from rank to rank --------------------------------------------------------------------------------------------

    def send(self, tensors: Sequence[Any], rank: int, tag: int) -> Work:  # noqa: D102
        data = Tensors(tensors)
        work = Work(tensors)

        def start() -> None:
            if rank == self._mesh.rank:
                self._mesh.send_to_self(data.blocks[0], tag=tag)
                work.end(None)
            else:
                self._mesh.links[rank].send(data.blocks[0], tag=tag, done=work.end)

        self._loop.loop.call_soon_threadsafe(start)
        return work

    def recv(self, tensors: Sequence[Any], rank: int, tag: int) -> Work:  # noqa: D102
        return self._receive(tensors, rank=rank, tag=tag)

    def recv_anysource(self, tensors: Sequence[Any], tag: int) -> Work:  # noqa: D102
        return self._receive(tensors, rank=None, tag=tag)

    def _receive(self, tensors: Sequence[Any], *, rank: int | None, tag: int) -> Work:
        data = Tensors(tensors)
        work = Work(tensors, after=data.write_back)
        receive = Receive(data.blocks[0], rank=rank, tag=tag, done=work.end)
        self._loop.loop.call_soon_threadsafe(self._mesh.receive, receive)
        return work

    # -- ends ---------------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Let what was sent arrive, and leave the group."""
        if not self._closed:
            self._closed = True
            _open_groups.discard(self)
            with suppress(TimeoutError):
                self._loop.submit(self._mesh.close()).result(CLOSE_S)

    def abort(self) -> None:
        """End everything that runs, with an error, and leave the group."""
        self._loop.loop.call_soon_threadsafe(self._mesh.fail, GroupError("the process group was aborted"))
        self.shutdown()


_open_groups: weakref.WeakSet[ProcessGroupSRD] = weakref.WeakSet()


@atexit.register
def _leave() -> None:
    """Leave all groups, so that the other ranks need not wait for a process that has ended."""
    for group in list(_open_groups):
        group.shutdown()


def create(options: Any, _: object = None) -> ProcessGroupSRD:
    """Make this rank's end of a group, for `Backend.register_backend`. Raises GroupError."""
    rank, size = options.group_rank, options.group_size
    ranks = options.global_ranks_in_group
    rendezvous = Rendezvous(options.store, rank=rank, size=size)
    host = own_host(os.environ, rank=ranks[rank] if ranks else rank)
    if size == 1:
        mesh = Mesh(None, rank=rank, hosts=[host], leaves=[""])
    else:
        thread = loop_thread()
        endpoint = thread.submit(listen(host, key=rendezvous.key())).result()
        rendezvous.publish(host, endpoint.address[1], leaf=own_leaf(os.environ))
        joining = partial(join, endpoint, rendezvous.entries(), rank=rank)
        mesh = thread.submit(joining(timeout_s=options.timeout.total_seconds())).result()
    return ProcessGroupSRD(mesh, timeout=options.timeout)


__all__ = ["NAME", "ProcessGroupSRD", "ReduceOp", "create"]
