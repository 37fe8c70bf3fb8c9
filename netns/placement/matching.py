"""Match pods and nodes: tolerations against taints, node selectors, node affinity.

The rules are those of Kubernetes' scheduler: the first taint that is not tolerated excludes a node; PreferNoSchedule
excludes none; the terms of a required affinity are alternatives, the expressions of a term must all hold; a term
without any matches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from netns.inventory.nodes import Node, Taint
from netns.placement.model import Affinity, Expression, Term, Toleration

EXCLUDING_EFFECTS: Final = ("NoSchedule", "NoExecute")

SELECTOR: Final = "nodeSelector"
AFFINITY: Final = "affinity"

_NUMERIC: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "Gt": lambda value, bound: value > bound,
    "Lt": lambda value, bound: value < bound,
}


def why_not(
    node: Node, *, tolerations: Sequence[Toleration], selector: Mapping[str, str], affinity: Affinity | None
) -> str | None:
    """Return why a pod may not run on `node`, as failure messages count it; None if it may."""
    for taint in node.taints:
        if taint.effect in EXCLUDING_EFFECTS and not any(tolerates(each, taint) for each in tolerations):
            return f"taint {taint}"
    if any(node.labels.get(key) != value for key, value in selector.items()):
        return SELECTOR
    required = None if affinity is None else affinity.required
    if required is not None and not any(matches(term, node) for term in required):
        return AFFINITY
    return None


def score(node: Node, affinity: Affinity | None) -> int:
    """Return the sum of the weights of the preferred terms that `node` matches."""
    if affinity is None:
        return 0
    return sum(weight for weight, term in affinity.preferred if matches(term, node))


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a pod with `toleration` may run in spite of `taint`."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    if toleration.operator in _NUMERIC:
        value, bound = _integer(taint.value), _integer(toleration.value)
        return value is not None and bound is not None and _NUMERIC[toleration.operator](value, bound)
    return toleration.operator == "Exists"


def matches(term: Term, node: Node) -> bool:
    """Return whether all requirements of `term` hold for `node`."""
    if not term.expressions and not term.fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(each, node.labels) for each in term.expressions) and all(
        _holds(each, fields) for each in term.fields
    )


def _holds(expression: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:  # Gt, Lt
            number = None if value is None else _integer(value)
            bound = _integer(expression.values[0]) if len(expression.values) == 1 else None
            holds = _NUMERIC.get(expression.operator)
            return holds is not None and number is not None and bound is not None and holds(number, bound)


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
