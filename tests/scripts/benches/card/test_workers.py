"""scripts.benches.card.worker: every application on two cards for a moment, and what each finds damaged."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from nitro_emu.card.control import ask
from scripts.benches.card.cards import WORKER, CardOptions, TwoCards, device, two_cards
from scripts.benches.card.neighbour import neighbour, requests_per_second
from scripts.benches.card.worker import flood, rate, shares, writes
from scripts.benches.card.worker.endpoint import failure
from scripts.benches.veth.worker import bulk
from scripts.benches.veth.worker.rate import content
from scripts.harness.client_server import Event, python, run_both
from scripts.harness.errors import BenchError
from tests.patience import PATIENCE_S
from tests.scripts.benches.card.loopback import loopback_pair

VFS = 2
MOMENT_S = "0.05"


@pytest.fixture(scope="module")
def cards() -> Iterator[TwoCards]:
    with two_cards(loopback_pair(), CardOptions(vfs=VFS)) as running:
        yield running


def run(
    cards: TwoCards, role: str, *options: str, devices: tuple[str, ...] = ("efa_0",), sender: tuple[str, ...] = ()
) -> tuple[Event, Event]:
    return run_both(
        cards.pair,
        server=python(WORKER, f"{role}-receive", str(cards.b.run_dir), *devices, *options),
        client=lambda host, port: python(
            WORKER, f"{role}-send", str(cards.a.run_dir), *devices, host, str(port), *options, *sender,
            "--seconds", MOMENT_S,
        ),
        bound_s=PATIENCE_S,
    )  # fmt: skip


def test_pingpong(cards: TwoCards) -> None:
    _, measured = run(cards, "ping", sender=("--warm-up", "2", "--fewest", "5"))
    assert measured["round_trips"] >= 5
    assert 0 < measured["figures"]["p50_us"] <= measured["figures"]["p99_us"] <= measured["figures"]["p999_us"]


def test_writes(cards: TwoCards) -> None:
    turn_bytes = 3 * bulk.MESSAGE_BYTES
    before = cards.b.counters()["rdma_write_recv_bytes"]
    received, sent = run(cards, "write", "--turn-bytes", str(turn_bytes))
    turns = len(sent["turns_bps"])
    assert sent["bytes"] == turns * turn_bytes
    assert sent["all_bytes"] == (turns + bulk.WARM_UP_TURNS) * turn_bytes
    assert cards.b.counters()["rdma_write_recv_bytes"] - before == sent["all_bytes"]
    assert sent["seconds"] >= float(MOMENT_S)
    assert (sent["cpu_s"] > 0, received["cpu_s"] >= 0) == (True, True)


@pytest.mark.parametrize("damaged_at", [None, 0, bulk.MESSAGE_BYTES, 6 * bulk.MESSAGE_BYTES - 1])
def test_wrong_writes(damaged_at: int | None) -> None:
    expected = bulk.content()
    payload = np.resize(expected, 6 * bulk.MESSAGE_BYTES)
    if damaged_at is not None:
        payload[damaged_at] ^= 1
    assert writes.wrong_writes(payload, expected) == (damaged_at is not None)


def test_rate(cards: TwoCards) -> None:
    messages = 1000
    _, sent = run(cards, "rate", "--messages", str(messages))
    assert sent["messages"] >= messages
    assert sent["messages"] % messages == 0
    assert sent["seconds"] >= float(MOMENT_S)


def test_is_intact() -> None:
    rows = content(rate.BYTES)[:100]
    shuffled = np.random.default_rng(1).permutation(rows)
    assert rate.is_intact(shuffled, rows)
    damaged = shuffled.copy()
    damaged[7, 40] ^= 1
    assert not rate.is_intact(damaged, rows)
    twice = shuffled.copy()
    twice[3] = twice[4]
    assert not rate.is_intact(twice, rows)
    assert not rate.is_intact(np.full_like(rows, 0xFF), rows)  # numbers that are none
    assert not rate.is_intact(np.zeros_like(rows), rows)


def test_shares(cards: TwoCards) -> None:
    _, sent = run(cards, "shares", "--vfs", str(VFS), devices=())
    assert len(sent["bytes"]) == VFS
    assert all(share % shares.WRITE_BYTES == 0 for share in sent["bytes"])
    assert not np.array_equal(shares.content(0), shares.content(1))


@pytest.mark.parametrize(
    "kind", [flood.KINDS[0], *(pytest.param(kind, marks=pytest.mark.long) for kind in flood.KINDS[1:])]
)
def test_neighbour(cards: TwoCards, kind: str) -> None:
    with neighbour(cards, kind):
        _, measured = run(cards, "ping", sender=("--warm-up", "2", "--fewest", "5"))
    assert measured["round_trips"] >= 5


def test_neighbour__has_ended(cards: TwoCards) -> None:
    with pytest.raises(BenchError, match="the neighbour ended with status -9"), neighbour(cards, flood.WIRE):
        end_programs(cards)


def end_programs(cards: TwoCards) -> None:
    (pid,) = ask(cards.a.run_dir, "status")["vfs"]["efa_1"]["programs"]
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_requests_per_second() -> None:
    events: list[Event] = [{"event": "flooding"}, {"event": "flooded", "requests": 10, "seconds": 0.5}]
    assert requests_per_second(events) == 20
    with pytest.raises(BenchError, match="has not counted"):
        requests_per_second(events[:1])


def test_no_such_device(cards: TwoCards) -> None:
    with pytest.raises(BenchError, match="'none' is no device"):
        run(cards, "ping", devices=("none",))


def test_failure() -> None:
    assert str(failure(10)) == "a request ended with status 10, REMOTE_ERROR_RNR"
    assert "unknown" in str(failure(99))


def test_device() -> None:
    assert device(3) == "efa_3"
