"""srd.torch: what a call returns: futures that never crash torch, waits with a timeout, errors."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.srd.torch.ranks import GroupError, Work, dist, run, torch


def test_future__has_the_tensors() -> None:
    tensor = torch.ones(3)
    work = Work([tensor])
    early = work.get_future()
    assert not work.is_completed()
    work.end(None)
    assert early.wait()[0] is tensor
    assert work.get_future().wait()[0] is tensor
    assert work.get_future().then(lambda future: future.value()[0] + 1).wait().tolist() == [2, 2, 2]
    assert work.wait()
    assert work.is_success()


def test_future__raises_what_the_work_failed_with() -> None:
    work = Work([torch.ones(3)])
    future = work.get_future()
    work.end(GroupError("rank 1 at 192.0.2.1 is lost"))
    with pytest.raises(RuntimeError, match=r"rank 1 at 192.0.2.1 is lost"):
        future.wait()
    with pytest.raises(GroupError, match="is lost"):
        work.wait()
    assert isinstance(work.exception(), GroupError)
    assert work.is_completed()
    assert not work.is_success()


def test_wait__ends_at_its_timeout() -> None:
    with pytest.raises(GroupError, match=r"within 0\.01 s"):
        Work([]).wait(timedelta(milliseconds=10))


def refusals() -> None:
    for tensor, op, message in (
        (torch.ones(3).to_sparse(), dist.ReduceOp.SUM, "layout: torch.sparse_coo is not supported"),
        (torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG, "AVG is not defined for torch.int32"),
        (torch.ones(3, device="meta"), dist.ReduceOp.SUM, "device: meta is not supported"),
    ):
        with pytest.raises(GroupError, match=message):
            dist.all_reduce(tensor, op)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # nothing of it has left this rank
    assert tensor.tolist() == [2, 2, 2]


def test_what_is_not_supported__is_refused_before_it_begins(tmp_path: Path) -> None:
    run(refusals, world=2, store=tmp_path / "store")
