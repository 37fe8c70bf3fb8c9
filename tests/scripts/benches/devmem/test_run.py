"""Transfers of `scripts/bench devmem` over a pair of namespaces: what is moved is there, and nobody copied it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.benches.devmem import pair as pairs
from scripts.benches.devmem.host import MESSAGE_BYTES, WARM
from scripts.benches.devmem.pair import Pair, pair
from scripts.benches.devmem.run import is_killed, transfer
from scripts.benches.errors import BenchError

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def bare() -> Iterator[Pair]:
    with pair(shaped=False) as made:
        yield made


def test_transfer__from_region_to_region_without_a_copy(bare: Pair) -> None:
    assert is_killed("blind", bare), "the witness sees"
    done = transfer("guarded", bare, seconds=0)
    assert done.received["messages"] == WARM
    assert done.bytes_copied == done.received["linear_bytes"] == 0


@pytest.mark.parametrize(("way", "copies"), [("gather", 1), ("classic", 2)])
def test_transfer__copies_are_counted(bare: Pair, way: str, copies: int) -> None:
    done = transfer(way, bare, seconds=0.1)
    assert done.bytes_copied == copies * done.received["messages"] * MESSAGE_BYTES
    assert done.goodput_bps > 0
    assert done.cpu_s_per_gb > 0


def test_transfer__that_fails_says_so_bad_flow(bare: Pair) -> None:
    with pytest.raises(BenchError, match="nonsense receive: "):
        transfer("nonsense", bare, seconds=0)


def test_pair__leaves_nothing_and_removes_what_a_killed_run_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "_PREFIX", "srd-devmemtest-")
    left = "srd-devmemtest-4194999-bare-a"  # of a process that cannot be: beyond pid_max
    pairs._run("ip", "netns", "add", left)
    with pair(shaped=True) as made:
        assert not Path("/run/netns", left).exists()
        assert Path("/run/netns", made.a).exists()
    assert not list(Path("/run/netns").glob("srd-devmemtest-*"))
