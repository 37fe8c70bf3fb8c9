"""No acknowledged write is lost, and no old one read, whatever fails: short histories in virtual time, by seed."""

from __future__ import annotations

import pytest

from tests.nitro_emu.ebs.histories import History
from tests.nitro_emu.ebs.stopped_writer import read_after_a_stop, write_after_a_stop


def test_histories_are_linearizable() -> None:
    histories = [History(seed).run() for seed in range(40)]
    assert sum(each.done for each in histories) > 20 * len(histories)
    assert sum(each.faults for each in histories) > 2 * len(histories)
    assert sum(each.has_fenced for each in histories) > len(histories) / 20
    assert sum(each.failed for each in histories)


IS_OUT = "v: another writer has attached it (epoch 2); this one is out: attach it again"


@pytest.mark.parametrize("away", range(3))
def test_a_writer_that_was_stopped_reads_nothing_old(away: int) -> None:
    assert read_after_a_stop(away) == IS_OUT


@pytest.mark.parametrize("away", range(3))
def test_a_writer_that_was_stopped_writes_nothing(away: int) -> None:
    assert write_after_a_stop(away) == IS_OUT


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(1, 40))
def test_thousands_of_histories_are_linearizable(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        History(seed).run()
