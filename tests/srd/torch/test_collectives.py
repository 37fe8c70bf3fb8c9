"""srd.torch: every collective gives what it should, for all types, lengths, roots and numbers of ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.srd.torch.ranks import dist, run, torch

LENGTHS = (0, 1, 5, 1000, 16_384, 16_387, 100_003, 300_001)
"""Elements: none, fewer than ranks, up to what goes at once, odd ones beyond it, several pieces."""
OPS: dict[str, Callable[[list[Any]], Any]] = {
    "SUM": lambda values: sum(values[1:], values[0]),
    "PRODUCT": lambda values: torch.stack(values).prod(0).to(values[0].dtype),
    "MIN": lambda values: torch.stack(values).amin(0),
    "MAX": lambda values: torch.stack(values).amax(0),
    "BAND": lambda values: _fold(torch.bitwise_and, values),
    "BOR": lambda values: _fold(torch.bitwise_or, values),
    "BXOR": lambda values: _fold(torch.bitwise_xor, values),
}
TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool")


def _fold(function: Any, values: list[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result


def values_of(rank: int, length: int, dtype: Any) -> Any:
    """Small whole numbers: every sum and product of them is exact in all types."""
    numbers = (torch.arange(length) * (rank + 3) + rank) % 3
    return numbers.to(dtype)


def all_reduces() -> None:
    rank = dist.get_rank()
    world = dist.get_world_size()
    for name in TYPES:
        dtype = getattr(torch, name)
        for op, expected in OPS.items():
            if op.startswith("B") and dtype.is_floating_point:
                continue
            if op in {"MIN", "MAX"} and dtype is torch.bool:
                continue
            for length in LENGTHS if name in {"float32", "bool"} or op == "SUM" else (1000, 40_001):
                given = [values_of(each, length, dtype) for each in range(world)]
                tensor = given[rank].clone()
                dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
                assert torch.equal(tensor, expected(given)), (name, op, length)


@pytest.mark.parametrize("world", [2, 3, 4])
def test_all_reduce__every_type_operation_and_length(world: int, tmp_path: Path) -> None:
    run(all_reduces, world=world, store=tmp_path / "store")


def float_bits() -> list[bytes]:
    rank = dist.get_rank()
    found = []
    for length in (7, 5000, 100_003, 1_000_003):
        torch.manual_seed(rank)
        tensor = torch.randn(length)
        dist.all_reduce(tensor)
        mean = torch.randn(length)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        found += [tensor.numpy().tobytes(), mean.numpy().tobytes()]
    return found


@pytest.mark.parametrize("world", [3, 5])
def test_all_reduce__same_bits_at_all_ranks(world: int, tmp_path: Path) -> None:
    first, *others = run(float_bits, world=world, store=tmp_path / "store")
    assert len(set(first)) == 8
    assert all(each == first for each in others)


def strange_tensors() -> None:
    rank = dist.get_rank()
    world = dist.get_world_size()
    odd = torch.arange(24.0).reshape(4, 6).t() + rank  # not contiguous
    dist.all_reduce(odd)
    assert torch.equal(odd, torch.arange(24.0).reshape(4, 6).t() * world + sum(range(world)))
    pairs = torch.full((50_001,), 1 + 2j) * (rank + 1)
    dist.all_reduce(pairs)
    assert torch.equal(pairs, torch.full((50_001,), 1 + 2j) * sum(range(world + 1)))
    strided = torch.zeros(10, 10)[:, ::2]
    dist.broadcast(strided if rank else strided.fill_(7), 0)
    assert bool((strided == 7).all())
    with torch.inference_mode():
        inferred = torch.ones(100)
        dist.all_reduce(inferred)
        assert bool((inferred == world).all())
    weight = torch.nn.Parameter(torch.full((40_000,), float(rank)))
    dist.broadcast(weight.data, world - 1)
    assert bool((weight == world - 1).all())


def test_tensors_that_are_not_plain(tmp_path: Path) -> None:
    run(strange_tensors, world=3, store=tmp_path / "store")


def other_collectives() -> None:
    rank = dist.get_rank()
    world = dist.get_world_size()
    for length in LENGTHS:
        given = [values_of(each, length, torch.float32) for each in range(world)]
        own, total = given[rank], OPS["SUM"](given)
        for root in range(world):
            tensor = own.clone()
            dist.broadcast(tensor, root)
            assert torch.equal(tensor, given[root]), ("broadcast", length, root)
            tensor = own.clone()
            dist.reduce(tensor, root)
            assert torch.equal(tensor, total if rank == root else own), ("reduce", length, root)
            places = [torch.full_like(own, -1) for _ in range(world)] if rank == root else None
            dist.gather(own, places, root)
            assert places is None or all(map(torch.equal, places, given)), ("gather", length, root)
            tensor = torch.full_like(own, -1)
            dist.scatter(tensor, given if rank == root else None, root)
            assert torch.equal(tensor, own), ("scatter", length, root)
        results = [torch.full_like(own, -1) for _ in range(world)]
        dist.all_gather(results, own)
        assert all(map(torch.equal, results, given)), ("all_gather", length)
        whole = torch.full((world * length,), -1.0)
        dist.all_gather_single(whole, own)
        assert torch.equal(whole, torch.cat(given)), ("all_gather_single", length)
        tensor = torch.full_like(own, -1)
        dist.reduce_scatter(tensor, [own + each for each in range(world)])
        assert torch.equal(tensor, total + world * rank), ("reduce_scatter", length)
        dist.reduce_scatter_single(tensor, torch.cat([own * each for each in range(world)]))
        assert torch.equal(tensor, total * rank), ("reduce_scatter_single", length)
        results = [torch.full_like(own, -1) for _ in range(world)]
        dist.all_to_all(results, [own + 10 * each for each in range(world)])
        assert all(torch.equal(results[each], given[each] + 10 * rank) for each in range(world)), ("all_to_all", length)
        dist.barrier()


@pytest.mark.parametrize("world", [2, 3, 4])
def test_the_other_collectives__every_root_and_length(world: int, tmp_path: Path) -> None:
    run(other_collectives, world=world, store=tmp_path / "store")


def uneven() -> None:
    """Rank r sends s + 1 rows to rank s, which say both."""
    rank = dist.get_rank()
    world = dist.get_world_size()
    sent = [each + 1 for each in range(world)]
    given = torch.cat([torch.full((count, 3), 100 * rank + each) for each, count in enumerate(sent)])
    result = torch.full(((rank + 1) * world, 3), -1)
    dist.all_to_all_single(result, given, [rank + 1] * world, sent)
    assert torch.equal(result, torch.cat([torch.full((rank + 1, 3), 100 * each + rank) for each in range(world)]))


def test_all_to_all_single__uneven_rows(tmp_path: Path) -> None:
    run(uneven, world=3, store=tmp_path / "store")


def coalesced() -> None:
    rank = dist.get_rank()
    world = dist.get_world_size()
    group = dist.group.WORLD
    own = [torch.full((size,), float(rank + size)) for size in (3, 70_001)]
    wholes = [torch.empty(world * size) for size in (3, 70_001)]
    with dist._coalescing_manager(group):
        for whole, each in zip(wholes, own, strict=True):
            dist.all_gather_single(whole, each)
    for whole, size in zip(wholes, (3, 70_001), strict=True):
        assert torch.equal(whole, torch.cat([torch.full((size,), float(other + size)) for other in range(world)]))
    with dist._coalescing_manager(group):
        for each in own:
            dist.all_reduce(each)
    for each, size in zip(own, (3, 70_001), strict=True):
        assert bool((each == sum(other + size for other in range(world))).all())


def test_coalesced(tmp_path: Path) -> None:
    run(coalesced, world=3, store=tmp_path / "store")


def at_once() -> None:
    """Many collectives on the same tensor, begun before any is waited for; they run in order, at every rank."""
    world = dist.get_world_size()
    tensor = torch.full((100_003,), 1.0)
    works = [dist.all_reduce(tensor, async_op=True) for _ in range(5)]
    works.append(dist.broadcast(tensor, 1, async_op=True))
    for work in works:
        assert work.wait()
    assert bool((tensor == world**5).all())


def test_collectives__run_in_the_order_of_their_calls(tmp_path: Path) -> None:
    run(at_once, world=3, store=tmp_path / "store")


def subgroups() -> None:
    rank = dist.get_rank()
    low, high = dist.new_group([0, 1]), dist.new_group([1, 2, 3])
    tensor = torch.full((10,), float(rank))
    if rank <= 1:
        dist.all_reduce(tensor, group=low)
    if rank >= 1:
        dist.all_reduce(tensor, group=high)
    assert tensor.tolist() == [{0: 1.0}.get(rank, 6.0)] * 10


def test_subgroups(tmp_path: Path) -> None:
    run(subgroups, world=4, store=tmp_path / "store")


def in_place() -> tuple[int, int]:
    tensor = torch.ones(4 << 20)
    dist.all_reduce(tensor)
    group = dist.group.WORLD
    before = group.copied_bytes
    dist.all_reduce(tensor)
    return group.copied_bytes - before, tensor.nbytes


def test_all_reduce__copies_only_what_lands_in_the_tensor(tmp_path: Path) -> None:
    """Nothing where it is sent; of what is received half is reduced where it landed, unless it lies in two pieces."""
    for copied, size in run(in_place, world=2, store=tmp_path / "store"):
        assert size / 2 <= copied <= size + (64 << 10)
