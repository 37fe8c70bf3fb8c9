"""The checks see what they are for: each defect is put in, and a history shows it, or a store that loses power."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nitro_emu.ebs import view
from nitro_emu.ebs.capsule import CapsuleCommand
from nitro_emu.ebs.server import wal
from nitro_emu.ebs.server.replica import Replica
from nitro_emu.ebs.server.store import AbsentError, BlockStore
from tests.nitro_emu.ebs.histories import History
from tests.nitro_emu.ebs.server.power_loss import (
    lose_power_after_a_checkpoint,
    lose_power_after_a_start,
    lose_power_often,
)
from tests.nitro_emu.ebs.stopped_writer import read_after_a_stop, write_after_a_stop
from tests.nitro_emu.ebs.test_lost_servers import LossHistory
from tests.nitro_emu.ebs.virtual_disk import VirtualFile

SEEDS = 100
"""Far more than any of these needs."""


def found_by_histories(make_replica: Callable[..., Replica] = Replica, *, first: int = 0) -> None:
    """`first`: a seed that shows it, or one soon after, so that the test does not take long."""
    with pytest.raises(AssertionError, match="seed"):
        run_seeds(lambda seed: History(seed, make_replica=make_replica).run(), first=first)


def run_seeds(check: Callable[[int], object], *, first: int = 0) -> None:
    for seed in range(first, first + SEEDS):
        check(seed)


def always(value: object, /) -> Callable[..., Any]:
    return lambda *_, **__: value


def test_a_skipped_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VirtualFile, "sync", always(None))
    found_by_histories()


class AnyEpoch(Replica):
    """Takes commands of writers that are over."""

    def _is_of_writer(self, _: CapsuleCommand) -> bool:
        return True


@pytest.mark.parametrize("away", range(3))
def test_a_stale_epoch(away: int) -> None:
    with pytest.raises(AssertionError, match="an acknowledged write is lost"):
        write_after_a_stop(away, make_replica=AnyEpoch)


@pytest.mark.parametrize("left_out", range(3), ids=["data", "entries", "kept"])
@pytest.mark.parametrize("lose_power", [lose_power_after_a_start, lose_power_after_a_checkpoint])
def test_a_file_that_a_checkpoint_leaves_out(
    monkeypatch: pytest.MonkeyPatch, left_out: int, lose_power: Callable[[], None]
) -> None:
    to_checkpoint = BlockStore.to_checkpoint
    monkeypatch.setattr(
        BlockStore,
        "to_checkpoint",
        lambda self: [each for at, each in enumerate(to_checkpoint(self)) if at != left_out],
    )
    with pytest.raises((AssertionError, AbsentError)):
        lose_power()


def test_a_wrong_replica_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view.View, "readers", lambda self, *_: list(self.members))
    monkeypatch.setattr(view.View, "has_reader", always(1))
    found_by_histories()


def test_a_replica_does_not_adopt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nitro_emu.ebs.forming.adoptions", always(()))
    found_by_histories()


def test_one_replica_is_taken_for_a_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "majority", always(1))
    found_by_histories(first=8)


def found_by_losses(*, first: int) -> None:
    """As `found_by_histories`, where hosts and a server are lost for good."""
    with pytest.raises(AssertionError, match="seed"):
        run_seeds(lambda seed: LossHistory(seed).run(), first=first)


def test_what_nobody_has_any_more_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nitro_emu.ebs.forming.roll_back", lambda decided, **_: decided)
    found_by_losses(first=2)


def test_what_no_majority_has_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view.View, "is_uncertain", always(0))
    found_by_losses(first=0)


def test_what_is_absent_does_not_keep_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockStore, "_keep", always(None))
    found_by_losses(first=5)


def test_a_lease_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view.View, "is_leased", always(1))
    with pytest.raises(AssertionError, match="an old block was read"):
        run_seeds(lambda seed: read_after_a_stop(seed % 3))


class Anything:
    """Equal to all."""

    def __eq__(self, _: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def test_a_torn_record_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "checksums", always(Anything()))
    with pytest.raises(AbsentError, match="is corrupt"):
        run_seeds(lose_power_often)
