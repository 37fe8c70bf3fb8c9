"""srd.examples.allreduce: every rank gets the exact sum, for all sizes; one-line errors."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srd import PeerError, SrdError
from srd.examples.allreduce import DEFAULT_PORT, MAX_PIECES, RankInfo, Ring, RingError, exact_sum, pattern
from tests.patience import PATIENCE_S

PROGRAM = Path(__file__).resolve().parents[3] / "srd" / "examples" / "allreduce.py"
_ports = itertools.count(20_000 + os.getpid() % 120 * 100)  # below the ephemeral range
ENVIRONMENT = {"RANK": "1", "WORLD_SIZE": "2", "RANK_HOSTS": "192.0.2.1,192.0.2.2"}


def infos(world: int) -> list[RankInfo]:
    hosts = tuple(f"127.0.1.{rank + 1}" for rank in range(world))
    port = next(_ports)
    return [RankInfo(rank, hosts, port) for rank in range(world)]


async def reduced(info: RankInfo, *, inputs: np.ndarray[Any, Any], piece_bytes: int, iterations: int) -> list[Any]:
    results = []
    async with Ring.join(info, elements=inputs.shape[1], piece_bytes=piece_bytes, timeout_s=PATIENCE_S) as ring:
        for iteration in range(iterations):
            ring.input[:] = inputs[info.rank] * (iteration + 1)
            ring.output.fill(np.nan)
            await ring.all_reduce()
            results.append(ring.output.copy())
    return results


@pytest.mark.parametrize(
    ("world", "elements", "piece_bytes"),
    [(1, 5, 4), (2, 1, 4), (2, 100_000, 1 << 14), (3, 2, 4096), (3, 1001, 64), (4, 8192, 1 << 20), (5, 99_991, 20_000)],
)
async def test_all_reduce__is_the_exact_sum_everywhere(world: int, elements: int, piece_bytes: int) -> None:
    """Sizes that do not divide evenly, and more ranks than elements, in three iterations with different numbers."""
    seed = 1000 * world + elements
    print(f"seed {seed}")
    inputs = np.random.default_rng(seed).integers(-1000, 1000, (world, elements)).astype(np.float32)
    async with asyncio.timeout(PATIENCE_S):
        found = await asyncio.gather(
            *(reduced(info, inputs=inputs, piece_bytes=piece_bytes, iterations=3) for info in infos(world))
        )
    for results in found:
        for iteration, output in enumerate(results):
            assert np.array_equal(output, inputs.sum(axis=0) * (iteration + 1))


@pytest.mark.parametrize("world", [1, 2, 7])
def test_exact_sum__equals_the_sum_of_patterns(world: int) -> None:
    patterns = np.stack([pattern(1000, rank=rank) for rank in range(world)])
    assert np.array_equal(patterns.astype(np.float64).sum(axis=0), exact_sum(1000, world=world).astype(np.float64))
    assert len({float(value) for value in patterns[0]}) > 200, "a misplaced chunk would be detected"


def test_exact_sum__not_representable_bad_flow() -> None:
    exact_sum(10, world=365)
    with pytest.raises(RingError, match="WORLD_SIZE: 366 is more ranks than float32 has exact sums for"):
        exact_sum(10, world=366)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"RANK": None}, "RANK: not set; give each process RANK, WORLD_SIZE and RANK_HOSTS, or use srd-lab run"),
        ({"RANK": "2"}, "RANK: '2' is not a number from 0 to 1"),
        ({"RANK": "-1"}, "RANK: '-1' is not a number"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE: '0' is not a number from 1 to"),
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE: 'x' is not a number"),
        ({"RANK_HOSTS": "192.0.2.1,"}, "RANK_HOSTS: names 1 hosts for a WORLD_SIZE of 2; give one for each rank"),
        ({"RANK_HOSTS": None}, "RANK_HOSTS: names 0 hosts"),
        ({"MASTER_PORT": "65536"}, "MASTER_PORT: '65536' is not a number from 1 to 65535"),
    ],
)
def test_from_environment__bad_flow(changes: dict[str, str | None], message: str) -> None:
    environment = {name: value for name, value in (ENVIRONMENT | changes).items() if value is not None}
    with pytest.raises(RingError) as caught:
        RankInfo.from_environment(environment)
    assert str(caught.value).startswith(message)


async def test_join__timeout() -> None:
    here, _ = infos(2)
    with pytest.raises(RingError, match=r"^rank 0: ranks 1 and 1 did not both come within 0.2 s$"):
        async with Ring.join(here, elements=4, timeout_s=0.2):
            pass


async def test_join__too_many_pieces() -> None:
    (alone,) = infos(1)
    with pytest.raises(RingError, match=rf"^pieces of 4 bytes: {MAX_PIECES + 1} a chunk, at most {MAX_PIECES}; make"):
        async with Ring.join(alone, elements=MAX_PIECES + 1, piece_bytes=4, timeout_s=PATIENCE_S):
            pass


async def joined(info: RankInfo, *, elements: int) -> None:
    async with Ring.join(info, elements=elements, timeout_s=PATIENCE_S) as ring:
        await ring.all_reduce()


async def test_join__sizes_differ() -> None:
    """Each rank reports the mismatch, by its own check or by the error of its peer."""
    one, other = infos(2)
    async with asyncio.timeout(PATIENCE_S):
        errors = await asyncio.gather(joined(one, elements=8), joined(other, elements=9), return_exceptions=True)
    assert any(isinstance(error, RingError) and "elements, this one 2 and" in str(error) for error in errors), errors


async def test_join__ranks_disagree_about_the_order() -> None:
    """Two processes with the hosts in opposite orders: each is rank 0, and each expects rank 1 at the other end."""
    one, _ = infos(2)
    reversed_hosts = RankInfo(0, one.hosts[::-1], one.port)
    async with asyncio.timeout(PATIENCE_S):
        errors = await asyncio.gather(
            joined(one, elements=8), joined(reversed_hosts, elements=8), return_exceptions=True
        )
    assert any(
        isinstance(error, RingError) and "give all ranks the same RANK_HOSTS" in str(error) for error in errors
    ), errors


async def test_all_reduce__a_neighbour_is_lost() -> None:
    here, there = infos(2)

    async def leaves() -> None:
        async with Ring.join(there, elements=1000, timeout_s=PATIENCE_S):
            raise ZeroDivisionError

    async with asyncio.timeout(PATIENCE_S):
        lost, left = await asyncio.gather(joined(here, elements=1000), leaves(), return_exceptions=True)
    assert isinstance(left, ZeroDivisionError), left
    assert isinstance(lost, PeerError | RingError), lost


async def test_join__address_of_another_host() -> None:
    with pytest.raises(SrdError, match="cannot be bound"):
        await joined(RankInfo(0, ("192.0.2.1",), DEFAULT_PORT), elements=4)


def program(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def ranks() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes; killed if they still run at the end."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        with process:
            if process.poll() is None:
                process.kill()


def test_program__prints_each_iteration_and_the_end(ranks: list[subprocess.Popen[str]]) -> None:
    info, *_ = infos(3)
    for rank in range(3):
        who = {
            "RANK": str(rank),
            "WORLD_SIZE": "3",
            "RANK_HOSTS": ",".join(info.hosts),
            "MASTER_PORT": str(info.port),
        }
        ranks.append(program("--bytes", "400000", "--iterations", "2", "--delay-target", "4ms", **who))
    for rank, process in enumerate(ranks):
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, errors) == (0, "")
        events = [json.loads(line) for line in output.splitlines()]
        assert [(event["event"], event["rank"], event["correct"]) for event in events] == [
            ("iteration", rank, True),
            ("iteration", rank, True),
            ("done", rank, True),
        ]
        assert events[-1]["bus_bandwidth_bps"] == pytest.approx(
            8 * 400_000 * 2 * 2 / 3 / events[-1]["seconds_per_iteration"], rel=0.01
        )


@pytest.mark.parametrize(
    ("arguments", "environment", "status", "says"),
    [
        ((), {"RANK": "9"}, 1, "allreduce: RANK: '9' is not a number from 0 to 0"),
        (("--bytes", "6"), {}, 2, "6 is no multiple of 4"),
        (("--delay-target", "4"), {}, 2, "4 is too long; at most 1 s"),
        (("--bytes", "0"), {}, 2, "0 is too small; at least 4 bytes"),
        ((), {"RANK_HOSTS": "192.0.2.1"}, 1, "cannot be bound"),
    ],
)
def test_program__bad_flow(
    ranks: list[subprocess.Popen[str]], arguments: tuple[str, ...], environment: dict[str, str], status: int, says: str
) -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "1", "RANK_HOSTS": "127.0.1.1", "MASTER_PORT": str(next(_ports))}
    ranks.append(program(*arguments, **(alone | environment)))
    output, errors = ranks[0].communicate(timeout=PATIENCE_S)
    assert (ranks[0].returncode, output) == (status, "")
    assert says in errors
    assert "Traceback" not in errors
