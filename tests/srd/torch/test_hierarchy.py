"""srd.torch: where leaves are known, an all-reduce passes through them: the same sums, in a documented order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.srd.torch.ranks import dist, leaf_and_column, run, torch

LENGTH = 100_003
TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
"""All that gloo reduces."""
SHAPES = [(4, "aabb"), (4, "abab"), (6, "abcabc"), (6, "aabbab")]
"""Ranks, and the leaf of each: in order, in turn, three leaves, in no order."""


def of_all_types() -> list[Any]:
    """All-reduce whole numbers, which are exact in all types, whatever the order."""
    rank = dist.get_rank()
    results = []
    for name in TYPES:
        for op in ("SUM", "MAX", "PRODUCT"):
            tensor = ((torch.arange(LENGTH) * (rank + 3) + rank) % 3).to(getattr(torch, name))
            dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
            results.append((name, op, tensor.view(torch.uint8).numpy().tobytes()))
    return results


@pytest.mark.parametrize(("world", "leaves"), SHAPES)
def test_all_reduce__gives_what_gloo_gives(world: int, leaves: str, tmp_path: Path) -> None:
    ours = run(of_all_types, world=world, store=tmp_path / "ours", leaves=leaves)
    theirs = run(of_all_types, world=world, store=tmp_path / "theirs", backend="gloo")
    assert all(each == theirs[0] for each in ours)


def numbers(rank: int) -> Any:
    torch.manual_seed(rank)
    return torch.randn(LENGTH)


def sums(op: str) -> tuple[bytes, int]:
    mesh = dist.group.WORLD._mesh
    tensor = numbers(dist.get_rank())
    before = {rank: link.sent_bytes for rank, link in mesh.links.items()}
    dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
    outside = set(range(mesh.size)) - set(mesh.leaf)
    sent = sum(link.sent_bytes - before[rank] for rank, link in mesh.links.items() if rank in outside)
    return tensor.numpy().tobytes(), sent


def in_order(world: int, leaves: str) -> Any:
    """Add up each element in the order that `srd.torch.collectives` says."""
    rows = [[rank for rank in range(world) if leaves[rank] == leaf] for leaf in sorted(set(leaves))]
    given = [numbers(rank) for rank in range(world)]
    width, height = len(rows[0]), len(rows)
    edges = [LENGTH * index // width for index in range(width + 1)]
    result = torch.empty(LENGTH)
    for chunk in range(width):
        start, end = edges[chunk], edges[chunk + 1]
        of_leaf = []
        for row in rows:
            total = given[row[chunk]][start:end].clone()
            for step in range(1, width):
                total = given[row[(chunk + step) % width]][start:end] + total
            of_leaf.append(total)
        length = end - start
        for part in range(height):
            low, high = length * part // height, length * (part + 1) // height
            total = of_leaf[part][low:high].clone()
            for step in range(1, height):
                total = of_leaf[(part + step) % height][low:high] + total
            result[start + low : start + high] = total
    return result


@pytest.mark.parametrize("op", ["SUM", "AVG"])
@pytest.mark.parametrize(("world", "leaves"), SHAPES)
def test_all_reduce__adds_up_in_the_order_that_is_documented(world: int, leaves: str, op: str, tmp_path: Path) -> None:
    wanted = in_order(world, leaves)
    results = run(sums, op, world=world, store=tmp_path / "store", leaves=leaves)
    expected = (wanted / world if op == "AVG" else wanted).numpy().tobytes()
    height = len(set(leaves))
    most = 4 * LENGTH * height / world * 2 * (height - 1) / height + 4096
    for found, sent_to_other_leaves in results:
        assert found == expected
        assert sent_to_other_leaves <= most, "a part of the tensor, twice, but for its own share"


@pytest.mark.parametrize(
    ("leaves", "leaf", "column"),
    [
        ("abab", [1, 3], [0, 1]),
        ("aabbcc", [0, 1], [1, 3, 5]),
        ("aaaa", None, ()),  # one leaf
        ("abcd", None, ()),  # a leaf each
        ("aab", None, ()),  # unlike
    ],
)
def test_leaf_and_column__unless_leaves_are_unlike(leaves: str, leaf: list[int] | None, column: list[int]) -> None:
    ring = sorted(range(len(leaves)), key=lambda each: (leaves[each], each))
    assert leaf_and_column(ring, leaves=leaves, rank=1) == (leaf, column)
