from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scripts.compare import conditions, contestants
from scripts.compare.errors import UnavailableError
from scripts.compare.experiment import Experiment, able
from scripts.compare.outcome import Outcome
from scripts.compare.payload import Payload

CUBIC, MPTCP = contestants.BY_KEY["tcp-cubic"], contestants.BY_KEY["mptcp"]


@pytest.fixture
def transfers(monkeypatch: pytest.MonkeyPatch, outcome: Outcome) -> list[str]:
    """Every transfer ends at once with `outcome`; return contestant and condition of each."""
    seen: list[str] = []

    class Instant:
        def __init__(self, contestant: contestants.Contestant, *, condition: Any, **_others: object) -> None:
            seen.append(f"{condition.key}/{contestant.key}")

        def run(self) -> Outcome:
            return outcome

    monkeypatch.setattr("scripts.compare.experiment.Transfer", Instant)
    return seen


def test_run__rounds_outside_contestants_inside(
    transfers: list[str], loopback: Any, payload: Payload, observer: Any, outcome: Outcome
) -> None:
    clean, loss = conditions.BY_KEY["clean"], conditions.BY_KEY["loss"]
    experiment = Experiment(contestants=(CUBIC, MPTCP), conditions=(clean, loss), rounds=2, bound_s=9)
    results = experiment.run(fabric=loopback, payload=payload, observer=observer)
    once = ["clean/tcp-cubic", "clean/mptcp", "loss/tcp-cubic", "loss/mptcp"]
    assert transfers == once + once
    assert results == {
        "clean": {"tcp-cubic": [outcome, outcome], "mptcp": [outcome, outcome]},
        "loss": {"tcp-cubic": [outcome, outcome], "mptcp": [outcome, outcome]},
    }
    assert observer.calls[:3] == ["round 1: clean", "tcp-cubic begins", "tcp-cubic ended True"]
    assert (
        loopback.calls
        == ["loss 0", "restore"] * 2
        + ["loss 1", "restore"] * 2
        + ["loss 0", "restore"] * 2
        + [
            "loss 1",
            "restore",
        ]
        * 2
    )


def test_run__fabric_is_restored_on_any_error(
    monkeypatch: pytest.MonkeyPatch, loopback: Any, payload: Payload, observer: Any
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scripts.compare.experiment.Transfer", explode)
    experiment = Experiment(contestants=(CUBIC,), conditions=conditions.CONDITIONS, rounds=1, bound_s=9)
    with pytest.raises(KeyboardInterrupt):
        experiment.run(fabric=loopback, payload=payload, observer=observer)
    assert loopback.calls[-1] == "restore"


def test_able__reason_for_each_unavailable(loopback: Any) -> None:
    lame = replace(CUBIC, key="lame", why_unavailable=lambda: "no legs")
    flows = replace(MPTCP, why_unavailable=lambda: None)
    assert able((CUBIC, lame, flows), fabric=loopback) == ((CUBIC, flows), {"lame": "no legs"})
    assert loopback.calls == ["endpoints"]


def test_able__a_kernel_that_refuses_endpoints(loopback: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise UnavailableError("mptcp: ip mptcp limits: not supported")

    monkeypatch.setattr(loopback, "add_subflow_endpoints", refuse)
    flows = replace(MPTCP, why_unavailable=lambda: None)
    assert able((flows,), fabric=loopback) == ((), {"mptcp": "mptcp: ip mptcp limits: not supported"})
