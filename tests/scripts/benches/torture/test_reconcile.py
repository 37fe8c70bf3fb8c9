"""scripts.benches.torture.reconcile: journals that do not agree, and memory that is not as it should be, are faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.benches.torture import layout
from scripts.benches.torture.journal import Journal
from scripts.benches.torture.pattern import fill
from scripts.benches.torture.plans import EndpointPlan, Kind, Net, NetworkPlan, ReceiverPlan, Scenario, SenderPlan
from scripts.benches.torture.reconcile import Observations, Reconciler
from srd.proto.wire.status import Status

WHO = layout.connection(1, incarnation=0, number=0)
SENDER = SenderPlan(EndpointPlan(), weights={Kind.SEND: 1.0}, longest_bytes=1000, outstanding=1, small=0.5)
SCENARIO = Scenario(7, 1.0, NetworkPlan(Net.LOOPBACK), ReceiverPlan(EndpointPlan()), (SENDER,))

Line = tuple[Any, ...]
Reconcile = Callable[..., Observations]


@pytest.fixture
def reconcile(tmp_path: Path) -> Reconcile:
    """Write journals, and have them judged."""

    def judged(*, sender: list[Line], receiver: list[Line], ends: bool = True) -> Observations:
        reconciler = Reconciler(SCENARIO, tmp_path)
        for who, lines in ((1, sender), (0, receiver)):
            journal = Journal(tmp_path / layout.journal_name(who, incarnation=0))
            for line in lines:
                journal.note(*line)
            if ends:
                journal.note("done")
            journal.close()
            reconciler.read(who, incarnation=0)
        return reconciler.reconcile()

    return judged


SEND: Line = ("send", WHO, 0, 100, 0)
OK: Line = ("end", WHO, 0, 1, int(Status.OK))
GOT: Line = ("got", WHO, 0, 100, 0)


def test_check__what_was_sent_and_delivered_agrees(reconcile: Reconcile) -> None:
    observed = reconcile(sender=[SEND, OK], receiver=[GOT])
    assert not observed.problems
    assert observed.requests == 1


@pytest.mark.parametrize(
    ("sender", "receiver", "said"),
    [
        ([SEND, OK], [], "completed with OK, and was not delivered"),
        ([SEND, OK], [GOT, GOT], "delivered 2 times"),
        ([SEND], [GOT], "never ended"),
        ([SEND, OK, OK], [GOT], "ended twice"),
        ([], [GOT], "never posted"),
        ([SEND, OK], [("got", WHO, 0, 99, 0)], "has 100 bytes, and came with 99"),
        ([SEND, OK], [("got", WHO, 0, 100, 1)], "came with immediate 1"),
        ([SEND, ("end", WHO, 0, 1, int(Status.REMOTE_ERROR_BAD_LENGTH))], [GOT], "BAD_LENGTH, and was delivered"),
        ([SEND, ("end", WHO, 0, 1, int(Status.LOCAL_ERROR_UNRESP_REMOTE))], [], "nothing was wrong"),
        ([("write", WHO, 0, 10, "t", 5, None, 2), OK], [], "had no right"),
        ([("write", WHO, 0, 10, "t", 5, 5, 0), OK], [], "completed with OK, and was not delivered"),
        ([], [("wrong", "bytes")], ""),
    ],
)
def test_check__what_does_not_agree_is_named(
    reconcile: Reconcile, sender: list[Line], receiver: list[Line], said: str
) -> None:
    observed = reconcile(sender=sender, receiver=receiver)
    assert any(said in problem for problem in [*observed.problems, *observed.wrong])


def test_check__who_was_killed_need_not_have_said_everything(reconcile: Reconcile) -> None:
    assert not reconcile(sender=[SEND], receiver=[GOT, ("got", WHO, 1, 5, 1)], ends=False).problems


def test_check__a_receiver_that_was_killed_need_not_have_read_everything(reconcile: Reconcile) -> None:
    assert not reconcile(sender=[SEND, OK], receiver=[], ends=False).problems


def test_check__short_messages_of_a_batch_share_a_number(reconcile: Reconcile) -> None:
    batch: Line = ("batch", WHO, 0, [1, 1, 100], 0)
    ended: Line = ("end", WHO, 0, 3, int(Status.OK))
    long: Line = ("got", WHO, 2, 100, 0)
    assert not reconcile(sender=[batch, ended], receiver=[("got_batch", WHO, [0, 0], 1, 0), long]).problems


def test_check__short_messages_of_a_batch_are_counted(reconcile: Reconcile) -> None:
    batch: Line = ("batch", WHO, 0, [1, 1], 0)
    ended: Line = ("end", WHO, 0, 2, int(Status.OK))
    assert "1 came" in reconcile(sender=[batch, ended], receiver=[("got_batch", WHO, [0], 1, 0)]).problems[0]


TARGET = layout.target(1, incarnation=0, receiver_incarnation=0, size_bytes=layout.TARGET_BYTES)


def memory(directory: Path) -> np.memmap[Any, np.dtype[np.uint8]]:
    found = np.memmap(TARGET.path(directory), np.uint8, "w+", shape=(TARGET.size_bytes,))
    TARGET.prepare(found, seed=SCENARIO.seed)
    return found


def test_check__memory_that_was_written_where_it_should_be(reconcile: Reconcile, tmp_path: Path) -> None:
    found, at = memory(tmp_path), layout.GUARD_BYTES + 5
    fill(found[at : at + 10], SCENARIO.seed, who=WHO, message=0)
    write: Line = ("write", WHO, 0, 10, TARGET.name, at, None, 0)
    assert not reconcile(sender=[write, OK], receiver=[]).wrong
    found[at + 10] ^= 1  # the first byte that nobody may write
    assert "where nothing may be written" in reconcile(sender=[], receiver=[]).wrong[0]
    found[at + 10] ^= 1
    found[at + 3] ^= 1
    assert "completed with OK: bytes 3 to 3" in reconcile(sender=[], receiver=[]).wrong[0]


def test_check__memory_that_changed_after_it_was_withdrawn(reconcile: Reconcile, tmp_path: Path) -> None:
    found = memory(tmp_path)
    (tmp_path / f"{TARGET.name}.withdrawn").write_bytes(found.tobytes())
    write: Line = ("write", WHO, 0, 10, TARGET.name, layout.GUARD_BYTES, None, 0)
    withdrawn: list[Line] = [("withdrawing", TARGET.name), ("withdrawn", TARGET.name)]
    aborted: Line = ("end", WHO, 0, 1, int(Status.REMOTE_ERROR_BAD_ADDRESS))
    found[layout.GUARD_BYTES] ^= 1
    assert any(
        "changed after it was withdrawn" in each
        for each in reconcile(sender=[write, aborted], receiver=withdrawn).wrong
    )
