"""srd.torch: a rank that dies, leaves, or calls something else ends the others' collectives, which say who it was."""

from __future__ import annotations

import os
import signal
import stat
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from srd.proto.endpoint.keepalive import REFUSED_S
from tests.srd.torch.ranks import UNRESPONSIVE_AFTER_S, GroupError, dist, run, torch


def error_of(tensor: object, *, group: object = None) -> str:
    """Return what an all-reduce of this tensor, or one soon after it, ends with."""
    for _ in range(100):
        try:
            dist.all_reduce(tensor, group=group)
        except GroupError as error:
            return str(error)
    raise AssertionError("it goes on")


def killed(lost: int) -> tuple[str, float]:
    rank = dist.get_rank()
    tensor = torch.ones(100_000)
    if rank == lost:
        dist.all_reduce(tensor)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    return error_of(tensor), time.monotonic() - began


@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_is_killed__is_named_soon(lost: int, tmp_path: Path) -> None:
    """Its host says that its port is closed, long before silence alone would tell."""
    results = run(killed, lost, world=3, store=tmp_path / "store", lost=(lost,))
    for message, seconds in (each for rank, each in enumerate(results) if rank != lost):
        assert message == f"rank {lost} at 127.0.0.1 is lost: no packet for {REFUSED_S} s"
        assert REFUSED_S / 2 < seconds < UNRESPONSIVE_AFTER_S / 2


def killed_with_a_child(note: Path) -> tuple[str, float]:
    """A rank with a process that it has forked, as of a DataLoader, which outlives it."""
    if dist.get_rank() == 1:
        if (child := os.fork()) == 0:
            for each in Path("/proc/self/fd").iterdir():
                with suppress(OSError):
                    if not stat.S_ISSOCK(each.stat().st_mode):  # the pipes of those who run it
                        os.close(int(each.name))
            signal.pause()
            os._exit(0)
        note.write_text(str(child))
    return killed(1)


def test_a_rank_that_is_killed__though_its_child_lives_on(tmp_path: Path) -> None:
    note = tmp_path / "child"
    try:
        message, seconds = run(killed_with_a_child, note, world=2, store=tmp_path / "store", lost=(1,))[0]
    finally:
        os.kill(int(note.read_text()), signal.SIGKILL)
    assert message == f"rank 1 at 127.0.0.1 is lost: no packet for {REFUSED_S} s"
    assert seconds < UNRESPONSIVE_AFTER_S / 2


def leaving() -> str:
    rank = dist.get_rank()
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    return "" if rank == 1 else error_of(tensor)


def test_a_rank_that_leaves__is_named(tmp_path: Path) -> None:
    results = run(leaving, world=3, store=tmp_path / "store")
    assert results[0].startswith("rank 1 at 127.0.0.1 has left the group")
    assert results[2].startswith("rank 1 at 127.0.0.1 has left the group")


def busy() -> float:
    """A rank whose interpreter is held for longer than a peer may be silent by default."""
    rank = dist.get_rank()
    tensor = torch.ones(100_000)
    seconds = 0.0
    for _ in range(2):
        dist.all_reduce(tensor)
        if rank == 1:
            began = time.monotonic()
            3**9_000_000  # noqa: B018 - holds the interpreter's lock
            seconds = max(seconds, time.monotonic() - began)
    dist.all_reduce(tensor)
    return seconds


def test_a_rank_that_holds_its_interpreter__is_not_lost(tmp_path: Path) -> None:
    _, seconds = run(busy, world=2, store=tmp_path / "store")
    assert 1.0 < seconds < UNRESPONSIVE_AFTER_S, "it shows nothing on this machine"


def unlike() -> str:
    rank = dist.get_rank()
    return error_of(torch.ones(1000 + rank))


def test_ranks_that_call_with_other_shapes__are_told(tmp_path: Path) -> None:
    for message in run(unlike, world=2, store=tmp_path / "store"):
        assert "the ranks have called different collectives, or with different shapes" in message


def bystander() -> str:
    """Ranks 0 and 1 call with other shapes; the others wait for something else of rank 0's."""
    if dist.get_rank() < 2:
        return error_of(torch.ones(1000 + dist.get_rank()))
    with pytest.raises(GroupError) as caught:
        dist.recv(torch.ones(10), 0)
    return str(caught.value)


def test_why_a_rank_gives_up__is_told_to_all(tmp_path: Path) -> None:
    for message in run(bystander, world=4, store=tmp_path / "store"):
        assert "the ranks have called different collectives, or with different shapes" in message


def late() -> str:
    rank = dist.get_rank()
    group = dist.new_group(timeout=timedelta(seconds=1))
    message = ""
    if rank != 1:
        message = error_of(torch.ones(10), group=group)
    dist.barrier()
    return message


def test_a_rank_that_does_not_come__is_named_at_the_timeout(tmp_path: Path) -> None:
    """Rank 2 waits for rank 0, which waits for rank 1; whoever gives up first, rank 0 knows it."""
    first, _, last = run(late, world=3, store=tmp_path / "store")
    assert "rank 1 at 127.0.0.1" in first
    for message in (first, last):
        assert message.startswith("all_reduce: not done within its timeout of 1 s; rank ")


def aborted() -> str:
    rank = dist.get_rank()
    group = dist.new_group()
    dist.barrier(group)
    dist.barrier()  # the other rank is done with that one
    work = dist.all_reduce(torch.ones(1_000_000), group=group, async_op=True) if rank == 0 else None
    message = ""
    if work is not None:
        group.abort()
        with pytest.raises(GroupError) as caught:
            work.wait()
        message = str(caught.value)
    dist.barrier()
    return message


def test_abort__ends_what_runs(tmp_path: Path) -> None:
    assert run(aborted, world=2, store=tmp_path / "store")[0] == "the process group was aborted"
