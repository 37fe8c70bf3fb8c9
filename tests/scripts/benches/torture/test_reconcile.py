"""scripts.benches.torture.reconcile: disagreeing journals and wrong memory are faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.benches.torture import layout
from scripts.benches.torture.journal import Journal
from scripts.benches.torture.pattern import fill
from scripts.benches.torture.plans import (
    EndpointPlan,
    Net,
    NetworkPlan,
    ReceiverPlan,
    RequestKind,
    SenderPlan,
    TortureScenario,
)
from scripts.benches.torture.reconcile import Reconciler
from scripts.benches.torture.result import TortureResult
from srd.proto.wire.status import Status

CONNECTION = layout.connection(1, incarnation=0, number=0)
SENDER = SenderPlan(EndpointPlan(), weights={RequestKind.SEND: 1.0}, longest_bytes=1000, outstanding=1, small=0.5)
SCENARIO = TortureScenario(7, 1.0, NetworkPlan(Net.LOOPBACK), ReceiverPlan(EndpointPlan()), (SENDER,))

Line = tuple[Any, ...]
Reconcile = Callable[..., TortureResult]


@pytest.fixture
def reconcile(tmp_path: Path) -> Reconcile:
    """Write journals, and reconcile them."""

    def reconciled(*, sender: list[Line], receiver: list[Line], ends: bool = True) -> TortureResult:
        result = TortureResult(SCENARIO)
        reconciler = Reconciler(result, tmp_path)
        for worker, lines in ((1, sender), (0, receiver)):
            journal = Journal(tmp_path / layout.journal_name(worker, incarnation=0))
            for line in lines:
                journal.note(*line)
            if ends:
                journal.note("done")
            journal.close()
            reconciler.read(worker, incarnation=0)
        reconciler.reconcile()
        return result

    return reconciled


SEND: Line = ("send", CONNECTION, 0, 100, 0)
OK: Line = ("end", CONNECTION, 0, 1, int(Status.OK))
GOT: Line = ("received", CONNECTION, 0, 100, 0)


def test_reconcile__agreement(reconcile: Reconcile) -> None:
    observed = reconcile(sender=[SEND, OK], receiver=[GOT])
    assert not observed.disagreements
    assert observed.requests == 1


@pytest.mark.parametrize(
    ("sender", "receiver", "expected"),
    [
        ([SEND, OK], [], "completed with OK, but was not delivered"),
        ([SEND, OK], [GOT, GOT], "delivered 2 times"),
        ([SEND], [GOT], "did not complete"),
        ([SEND, OK, OK], [GOT], "completed twice"),
        ([], [GOT], "never posted"),
        ([SEND, OK], [("received", CONNECTION, 0, 99, 0)], "has 100 bytes, but arrived with 99"),
        ([SEND, OK], [("received", CONNECTION, 0, 100, 1)], "arrived with immediate 1"),
        (
            [SEND, ("end", CONNECTION, 0, 1, int(Status.REMOTE_ERROR_BAD_LENGTH))],
            [GOT],
            "BAD_LENGTH, but was delivered",
        ),
        ([SEND, ("end", CONNECTION, 0, 1, int(Status.LOCAL_ERROR_UNRESP_REMOTE))], [], "without any fault"),
        ([("write", CONNECTION, 0, 10, "t", 5, None, 2), OK], [], "must be refused"),
        ([("write", CONNECTION, 0, 10, "t", 5, 5, 0), OK], [], "completed with OK, but was not delivered"),
        ([], [("wrong", "bytes")], ""),
    ],
)
def test_reconcile__disagreement(reconcile: Reconcile, sender: list[Line], receiver: list[Line], expected: str) -> None:
    observed = reconcile(sender=sender, receiver=receiver)
    assert any(expected in each for each in [*observed.disagreements, *observed.wrong])


def test_reconcile__killed_sender_has_no_end(reconcile: Reconcile) -> None:
    assert not reconcile(sender=[SEND], receiver=[GOT, ("received", CONNECTION, 1, 5, 1)], ends=False).disagreements


def test_reconcile__killed_receiver_may_miss_messages(reconcile: Reconcile) -> None:
    assert not reconcile(sender=[SEND, OK], receiver=[], ends=False).disagreements


def test_reconcile__short_messages_of_a_batch_share_a_number(reconcile: Reconcile) -> None:
    batch: Line = ("batch", CONNECTION, 0, [1, 1, 100], 0)
    ended: Line = ("end", CONNECTION, 0, 3, int(Status.OK))
    long: Line = ("received", CONNECTION, 2, 100, 0)
    assert not reconcile(
        sender=[batch, ended], receiver=[("received_batch", CONNECTION, [0, 0], 1, 0), long]
    ).disagreements


def test_reconcile__short_messages_of_a_batch_are_counted(reconcile: Reconcile) -> None:
    batch: Line = ("batch", CONNECTION, 0, [1, 1], 0)
    ended: Line = ("end", CONNECTION, 0, 2, int(Status.OK))
    assert (
        "1 arrived"
        in reconcile(sender=[batch, ended], receiver=[("received_batch", CONNECTION, [0], 1, 0)]).disagreements[0]
    )


TARGET = layout.target(1, incarnation=0, receiver_incarnation=0, size_bytes=layout.TARGET_BYTES)


def memory(directory: Path) -> np.memmap[Any, np.dtype[np.uint8]]:
    found = np.memmap(TARGET.path(directory), np.uint8, "w+", shape=(TARGET.size_bytes,))
    TARGET.prepare(found, seed=SCENARIO.seed)
    return found


def test_reconcile__written_memory(reconcile: Reconcile, tmp_path: Path) -> None:
    found, at = memory(tmp_path), layout.GUARD_BYTES + 5
    fill(found[at : at + 10], SCENARIO.seed, owner=CONNECTION, message=0)
    write: Line = ("write", CONNECTION, 0, 10, TARGET.name, at, None, 0)
    assert not reconcile(sender=[write, OK], receiver=[]).wrong
    found[at + 10] ^= 1  # the first byte after the write
    assert "outside of all requests" in reconcile(sender=[], receiver=[]).wrong[0]
    found[at + 10] ^= 1
    found[at + 3] ^= 1
    assert "completed with OK: bytes 3 to 3" in reconcile(sender=[], receiver=[]).wrong[0]


def test_reconcile__withdrawn_memory_changed(reconcile: Reconcile, tmp_path: Path) -> None:
    found = memory(tmp_path)
    (tmp_path / f"{TARGET.name}.withdrawn").write_bytes(found.tobytes())
    write: Line = ("write", CONNECTION, 0, 10, TARGET.name, layout.GUARD_BYTES, None, 0)
    withdrawn: list[Line] = [("withdrawing", TARGET.name), ("withdrawn", TARGET.name)]
    aborted: Line = ("end", CONNECTION, 0, 1, int(Status.REMOTE_ERROR_BAD_ADDRESS))
    found[layout.GUARD_BYTES] ^= 1
    assert any(
        "changed after it was withdrawn" in each
        for each in reconcile(sender=[write, aborted], receiver=withdrawn).wrong
    )
