"""netns.placement.matching: Kubernetes' rules for taints, selectors and affinity."""

from __future__ import annotations

import pytest

from netns.inventory.nodes import Effect, Node, Taint
from netns.placement.matching import matches, score, tolerates, why_not
from netns.placement.model import Affinity, Expression, Term, Toleration

NODE = Node("n1", labels={"zone": "a", "cores": "8", "odd": "x"})


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", "Equal", "yes"), True),
        (Toleration("gpu", "", "yes"), True),
        (Toleration("gpu", "Equal", "no"), False),
        (Toleration("gpu", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "yes"), True),
        (Toleration("cpu", "Exists"), False),
        (Toleration("gpu", "Exists", "", "NoSchedule"), True),
        (Toleration("gpu", "Exists", "", "NoExecute"), False),
        (Toleration("gpu", "Never", "yes"), False),
    ],
)
def test_tolerates(toleration: Toleration, tolerated: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert tolerates(toleration, Taint("gpu", "yes", "NoSchedule")) is tolerated


@pytest.mark.parametrize(
    ("operator", "value", "tolerated"), [("Gt", "5", True), ("Lt", "5", False), ("Gt", "x", False)]
)
def test_tolerates__numbers(operator: str, value: str, tolerated: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert tolerates(Toleration("sla", operator, value), Taint("sla", "7")) is tolerated


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        (Expression("zone", "In", ("a", "b")), True),
        (Expression("zone", "In", ("b",)), False),
        (Expression("rack", "In", ("a",)), False),
        (Expression("zone", "NotIn", ("b",)), True),
        (Expression("rack", "NotIn", ("b",)), True),
        (Expression("zone", "NotIn", ("a",)), False),
        (Expression("zone", "Exists"), True),
        (Expression("rack", "Exists"), False),
        (Expression("rack", "DoesNotExist"), True),
        (Expression("zone", "DoesNotExist"), False),
        (Expression("cores", "Gt", ("7",)), True),
        (Expression("cores", "Gt", ("8",)), False),
        (Expression("cores", "Lt", ("9",)), True),
        (Expression("odd", "Lt", ("9",)), False),
        (Expression("rack", "Lt", ("9",)), False),
        (Expression("cores", "Lt", ("9", "10")), False),
        (Expression("cores", "Near", ("8",)), False),
    ],
)
def test_matches(expression: Expression, holds: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert matches(Term((expression,)), NODE) is holds


def test_matches__all_of_a_term_its_fields_too_and_nothing_matches_an_empty_one() -> None:
    zone, name = Expression("zone", "Exists"), Expression("metadata.name", "In", ("n1",))
    assert matches(Term((zone,), (name,)), NODE)
    assert not matches(Term((zone, Expression("rack", "Exists")), (name,)), NODE)
    assert not matches(Term(fields=(Expression("metadata.name", "In", ("n2",)),)), NODE)
    assert not matches(Term(), NODE)


@pytest.mark.parametrize(
    ("effect", "reason"),
    [("NoSchedule", "taint gpu=yes:NoSchedule"), ("NoExecute", "taint gpu=yes:NoExecute"), ("PreferNoSchedule", None)],
)
def test_why_not__a_taint(effect: Effect, reason: str | None) -> None:
    tainted = Node("n", taints=(Taint("gpu", "yes", effect),))
    assert why_not(tainted, tolerations=(), selector={}, affinity=None) == reason
    assert why_not(tainted, tolerations=(Toleration("", "Exists"),), selector={}, affinity=None) is None


def test_why_not__taints_before_selector_before_affinity() -> None:
    nowhere = Affinity(required=(Term((Expression("rack", "Exists"),)),))
    assert why_not(NODE, tolerations=(), selector={"zone": "b"}, affinity=nowhere) == "nodeSelector"
    assert why_not(NODE, tolerations=(), selector={"zone": "a"}, affinity=nowhere) == "affinity"
    assert why_not(NODE, tolerations=(), selector={"zone": "a"}, affinity=Affinity()) is None
    assert why_not(NODE, tolerations=(), selector={}, affinity=Affinity(required=())) == "affinity"


def test_score__sums_the_weights_that_apply() -> None:
    here, there = Term((Expression("zone", "In", ("a",)),)), Term((Expression("zone", "In", ("b",)),))
    assert score(NODE, Affinity(preferred=((10, here), (5, there), (1, here), (100, Term())))) == 11
    assert score(NODE, None) == 0
