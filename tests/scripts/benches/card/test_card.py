"""scripts.benches.card: every application on two cards for a moment, and neighbours that do not stay."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from nitro_emu.card.control import ask
from scripts.benches.card import shares
from scripts.benches.card.cards import CardOptions, TwoCards, measured, two_cards
from scripts.benches.card.neighbour import FAIR, RINGS, WIRE, neighbour
from scripts.harness.client_server import run_both
from scripts.harness.errors import BenchError
from scripts.harness.worker import worker
from srd.perf.sweep.plan import Operation, Sweep
from tests.patience import PATIENCE_S
from tests.scripts.benches.card.loopback import loopback_pair

VFS = 2


@pytest.fixture(scope="module")
def cards() -> Iterator[TwoCards]:
    with two_cards(loopback_pair(), CardOptions(vfs=VFS)) as running:
        yield running


@pytest.mark.parametrize("operation", [Operation.LATENCY, Operation.RATE, Operation.WRITE])
def test_measured(cards: TwoCards, operation: Operation) -> None:
    sweep = Sweep(operation, sizes=(64,), iterations=5, verify=True)
    row = measured(cards, sweep, events=operation is Operation.WRITE)
    assert (row["iterations"], row["size_bytes"]) == (5, 64)
    assert row["cpu_s"] > 0


def test_shares(cards: TwoCards) -> None:
    _, sent = run_both(
        cards.pair,
        server=worker(shares.MODULE, "receive", run_dir=str(cards.b.run_dir), vfs=VFS),
        client=lambda host, port: worker(
            shares.MODULE, "send", run_dir=str(cards.a.run_dir), host=host, port=port, vfs=VFS, seconds=0.05
        ),
        bound_s=PATIENCE_S,
    )
    assert len(sent["bytes"]) == VFS
    assert all(share and share % shares.WRITE_BYTES == 0 for share in sent["bytes"])
    assert not np.array_equal(shares.content(0), shares.content(1))


@pytest.mark.parametrize("kind", [FAIR, *(pytest.param(kind, marks=pytest.mark.long) for kind in (RINGS, WIRE))])
def test_neighbour(cards: TwoCards, kind: str) -> None:
    with neighbour(cards, kind) as per_second:
        row = measured(cards, Sweep(Operation.LATENCY, sizes=(64,), iterations=5))
        assert per_second() > 0
    assert row["iterations"] == 5


def test_neighbour__has_ended(cards: TwoCards) -> None:
    """Its server may have ended, too, by the time that it is looked for."""
    with pytest.raises(BenchError, match=r"the neighbour('s server)? ended with status"), neighbour(cards, FAIR):
        end_program(cards)


def end_program(cards: TwoCards) -> None:
    (pid,) = ask(cards.a.run_dir, "status")["vfs"]["efa_1"]["programs"]
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
