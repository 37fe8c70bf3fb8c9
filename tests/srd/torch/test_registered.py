"""srd.torch.empty: what is received into registered memory is written there by the others, and copied by SRD alone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.srd.torch.ranks import GroupError, dist, run, torch

LENGTHS = (16_387, 65_536, 300_001, 20_000_003)
"""Elements: just too many to go at once, one piece, several odd ones, more than 256 KiB a piece."""


def numbers(rank: int, length: int) -> Any:
    return torch.arange(length, dtype=torch.int32) * (rank + 3) + rank


def counted(action: Callable[..., Any], *arguments: Any) -> tuple[int, int]:
    """Return the bytes that were copied here, and written by others, while all ranks did it."""
    group = dist.group.WORLD
    before = group.copied_bytes, group.written_bytes
    action(*arguments)
    return group.copied_bytes - before[0], group.written_bytes - before[1]


def gathers(kind: str) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    make = (torch if kind == "ordinary" else torch_of_srd()).empty
    for length in LENGTHS:
        own, whole = numbers(rank, length), make(world * length, dtype=torch.int32).fill_(-1)
        copied, written = counted(dist.all_gather_single, whole, own)
        assert torch.equal(whole, torch.cat([numbers(each, length) for each in range(world)]))
        received = (world - 1) * own.nbytes
        assert written == (0 if kind == "ordinary" else received)
        assert received <= copied <= received + (64 << 10), "each byte once, whoever does it"


def torch_of_srd() -> Any:
    import srd.torch  # noqa: PLC0415 - beside torch

    return srd.torch


@pytest.mark.parametrize("kind", ["ordinary", "registered"])
def test_all_gather__is_written_where_it_belongs(kind: str, tmp_path: Path) -> None:
    run(gathers, kind, world=3, store=tmp_path / "store")


def the_others() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for length in (300_001, 1_000_003):
        given = [numbers(each, length) for each in range(world)]
        memory = torch_of_srd().empty(length + 7, dtype=torch.int32).fill_(-1)
        place = memory[3 : 3 + length]  # a part of it
        for root in range(world):
            place.copy_(given[rank])
            _, written = counted(dist.broadcast, place, root)
            assert torch.equal(place, given[root])
            assert written == (0 if rank == root else place.nbytes)
        place.copy_(given[rank])
        _, written = counted(dist.all_reduce, place)
        assert torch.equal(place, sum(given[1:], given[0]))
        assert abs(written - place.nbytes * (world - 1) / world) < 64, "what was reduced was not written"
        if rank == 0:
            dist.send(given[0], 1)
        elif rank == 1:
            _, written = counted(dist.recv, place, 0)
            assert torch.equal(place, given[0])
            assert written == place.nbytes
        assert bool((memory[:3] == -1).all())
        assert bool((memory[3 + length :] == -1).all())


def test_other_collectives__write_and_touch_nothing_beside(tmp_path: Path) -> None:
    run(the_others, world=3, store=tmp_path / "store")


def registrations() -> int:
    return len(dist.group.WORLD._mesh._registrations._by_address)


def freed() -> None:
    rank = dist.get_rank()
    place = torch_of_srd().empty(2, 100_000)
    dist.broadcast(place.fill_(1 - rank), 0)
    assert registrations() == rank
    kept = place[1]
    del place
    gc.collect()
    dist.broadcast(kept.fill_(3 - rank), 0)
    assert bool((kept == 3).all())
    assert registrations() == rank
    del kept
    gc.collect()
    dist.barrier()  # the loop has heard of it
    assert registrations() == 0


def test_memory__is_registered_as_long_as_a_tensor_has_it(tmp_path: Path) -> None:
    run(freed, world=2, store=tmp_path / "store")


def withdrawn() -> None:
    rank = dist.get_rank()
    place = torch_of_srd().empty(100_000)
    dist.broadcast(place.fill_(7.0), 0)
    with pytest.raises(GroupError, match="different shapes"):
        dist.all_reduce(torch.ones(1000 + rank))
    assert registrations() == 0
    with pytest.raises(GroupError):
        dist.broadcast(place, 0)
    assert bool((place == 7).all())


def test_memory__is_withdrawn_with_the_first_error(tmp_path: Path) -> None:
    run(withdrawn, world=2, store=tmp_path / "store")


@pytest.mark.parametrize("shape", [((),), (0,), (3,), (2, 5), ((4, 1, 2),)])
def test_empty__has_the_shape_that_torch_gives(shape: tuple[Any, ...]) -> None:
    ours, theirs = torch_of_srd().empty(*shape, dtype=torch.float64), torch.empty(*shape, dtype=torch.float64)
    assert ours.shape == theirs.shape
    assert ours.dtype is theirs.dtype
    ours.fill_(2.0)
    assert ours.sum() == 2.0 * theirs.numel()
