"""srd.examples.tensor_exchange: two processes, both tensors right; mistakes are one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from srd.examples.tensor_exchange import fill, pattern_sum
from tests.patience import PATIENCE_S
from tests.ports import own_port

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "srd" / "examples" / "tensor_exchange.py"
SIZE = 16 << 20


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def both(*arguments: tuple[str, ...]) -> list[tuple[int, str, str]]:
    target = f"127.0.0.1:{own_port()}"
    ends = [start("--listen", target, *arguments[0]), start("--connect", target, *arguments[1])]
    results = []
    for end in ends:
        out, err = end.communicate(timeout=PATIENCE_S)
        results.append((end.returncode, out, err))
    return results


def test_exchange__both_tensors_arrive_and_are_reduced() -> None:
    size = ("--bytes", str(SIZE))
    results = both(size, size)
    for seed, (status, out, err) in zip((0, 1), results, strict=True):
        assert status == 0, err
        result = json.loads(out)
        assert result["bytes"] == SIZE
        assert result["sums"]["numpy"] == pattern_sum(SIZE // 4, seed=1 - seed)
        assert result["bytes_copied"] >= SIZE


def test_exchange__of_other_sizes_bad_flow() -> None:
    for status, out, err in both(("--bytes", "8192"), ("--bytes", "4096")):
        assert (status, out) == (1, "")
        assert len(err.splitlines()) == 1
        assert err.startswith("tensor_exchange: ")


@pytest.mark.parametrize(("elements", "seed"), [(1, 0), (250, 1), (251, 0), (252, 1), (3 << 20, 1)])
def test_pattern_sum__equals_the_sum_of_fill(elements: int, seed: int) -> None:
    tensor = np.empty(elements, np.float32)
    fill(tensor, seed=seed)
    assert tensor.sum(dtype=np.float64) == pattern_sum(elements, seed=seed)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give either --listen or --connect"),
        (("--listen", "a:1", "--connect", "b:2"), "give either --listen or --connect"),
        (("--listen", "19870"), "'19870' is not HOST, or HOST:PORT"),
        (("--connect", "h:70000"), "'h:70000' is not HOST, or HOST:PORT"),
        (("--connect", "h:1", "--bytes", "5000"), "--bytes: 5000 is no multiple of 4096"),
    ],
)
def test_usage_bad_flow(arguments: tuple[str, ...], says: str) -> None:
    end = start(*arguments)
    _, err = end.communicate(timeout=PATIENCE_S)
    assert end.returncode == 2
    assert says in err
