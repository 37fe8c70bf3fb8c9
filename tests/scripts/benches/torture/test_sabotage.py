"""Mutation tests: each past defect is reintroduced, and torture must detect it.

Each scenario has the conditions that its defect needs. The same scenario without the defect has no fault.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from scripts.benches.torture.plans import (
    KIB,
    MIB,
    AttackerPlan,
    EndpointPlan,
    FilesPlan,
    Net,
    NetworkPlan,
    ReceiverPlan,
    RequestKind,
    SenderPlan,
    TortureScenario,
)
from scripts.benches.torture.run import run_scenario
from scripts.benches.torture.scenario import LIE, with_region

pytestmark = pytest.mark.sources
SHORT_S = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario, and the kind and text of the fault that must be found."""

    scenario: TortureScenario
    kind: str
    expected: str


def endpoint(**settings: int) -> EndpointPlan:
    """In plain text, whose receive layout some of the defects are of."""
    plain = EndpointPlan(security="plain", request_timeout_s=2.0)
    return with_region(replace(plain, **settings), factor=1.0)  # type: ignore[arg-type]


def sender(weights: dict[RequestKind, float], *, longest: int, datagram_bytes: int) -> SenderPlan:
    plan = endpoint(datagram_bytes=datagram_bytes)
    return SenderPlan(plan, weights=weights, longest_bytes=longest, outstanding=16, small=0.2)


def sends(datagram_bytes: int, *, longest: int = MIB) -> SenderPlan:
    return sender({RequestKind.SEND: 1.0}, longest=longest, datagram_bytes=datagram_bytes)


def over_loopback(*senders: SenderPlan, seconds: float = 3.0) -> TortureScenario:
    return TortureScenario(1, seconds, NetworkPlan(Net.LOOPBACK), ReceiverPlan(endpoint()), senders)


def with_attackers(plain: TortureScenario) -> TortureScenario:
    kinds = {"empty": 1.0}
    attackers = tuple(
        AttackerPlan(200_000, trains=1.0, kinds=kinds, seconds=plain.seconds, security="plain") for _ in range(2)
    )
    return replace(plain, attackers=attackers)


def with_liars() -> TortureScenario:
    """Two honest senders, in whose names a peer that was let in seals packets."""
    settings = with_region(EndpointPlan(request_timeout_s=2.0), factor=1.0)
    plan = SenderPlan(settings, weights={RequestKind.SEND: 1.0}, longest_bytes=64 * KIB, outstanding=16, small=0.5)
    attacker = AttackerPlan(2000, trains=0.0, kinds={LIE: 1.0}, seconds=3.0)
    return TortureScenario(1, 3.0, NetworkPlan(Net.LOOPBACK), ReceiverPlan(settings), (plan, plan), (attacker,))


def with_files(plain: TortureScenario) -> TortureScenario:
    """Limit messages to less than a chunk, so that each request fails at once."""
    receiver = ReceiverPlan(endpoint(max_message_bytes=512 * KIB))
    return replace(plain, receiver=receiver, files=FilesPlan(sizes=(3 * MIB,)))


CASES = {
    "c1": Case(over_loopback(sends(8972), sends(1472)), "wrong bytes", "message"),
    "c2": Case(over_loopback(sends(8972), sends(700, longest=64 * KIB)), "wrong bytes", "data packet"),
    "h3": Case(with_attackers(over_loopback(sends(8972), seconds=200.0)), "leak", "while it ran"),  # ends at the leak
    "h6": Case(with_files(over_loopback(sends(8972))), "hang", "FileSender.send"),
    "h7": Case(
        over_loopback(sender({RequestKind.LENT: 1.0}, longest=4 * MIB, datagram_bytes=8972)), "wrong bytes", "came over"
    ),
    "s1": Case(with_liars(), "wrong bytes", "bytes of no message"),
}


@pytest.mark.parametrize("name", CASES)
def test_sabotage__is_detected(name: str) -> None:
    case = CASES[name]
    faults = run_scenario(case.scenario, sabotage=name).faults
    assert any(kind == case.kind and case.expected in what for kind, what in faults), faults


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_sabotage__without_the_defect_no_fault(name: str) -> None:
    plain = CASES[name].scenario
    attackers = tuple(replace(each, seconds=SHORT_S) for each in plain.attackers)
    assert not run_scenario(replace(plain, seconds=SHORT_S, attackers=attackers)).faults
