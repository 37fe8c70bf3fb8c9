"""Facts from Kueue's own tests (tests/data/governance_cases.json), and how an answer is compared with one.

The file names its origin: kubernetes-sigs/kueue at ff69552e, pkg/scheduler and pkg/cache (Apache-2.0), restated as
data; its form is that of `netns.governance.questions`. A fact that a case does not state is not compared. Reasons are
multisets; where a flavor fits, flavors that were not reached may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "data" / "governance_cases.json"
DOCUMENT: Mapping[str, Any] = json.loads(FILE.read_text())
CASES: Sequence[Mapping[str, Any]] = DOCUMENT["cases"]

UNORDERED = {"heads", "newly_admitted", "preempted", "evicted", "reserved", "reasons", "shares"}
"""Lists whose order says nothing."""


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Return where an answer is not what a case expects."""
    key = path.rpartition(".")[2]
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        wrong = [
            each for name, value in expected.items() for each in differences(value, found.get(name), f"{path}.{name}")
        ]
        if key in {
            "admitted",
            "pending_reasons",
            "left",
            "inadmissible",
            "active",
            "flavors",
            "usage",
            "reserved",
            "pending",
        }:
            wrong += [f"{path}.{name}: not expected" for name in found if name not in expected]
        return wrong
    if key == "attempts":
        return _attempts(expected, found, path)
    if isinstance(expected, list) and isinstance(found, list):
        if key in UNORDERED or ".facts." in path or ".left." in path or ".inadmissible." in path or ".active." in path:
            expected, found = sorted(expected, key=_text), sorted(found, key=_text)
        if len(expected) != len(found):
            return [f"{path}: {_text(expected)} expected, {_text(found)} found"]
        return [
            w for i, (a, b) in enumerate(zip(expected, found, strict=True)) for w in differences(a, b, f"{path}[{i}]")
        ]
    if expected != found and not (expected is None and not found):
        return [f"{path}: {_text(expected)} expected, {_text(found)} found"]
    return []


def _attempts(expected: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], path: str) -> list[str]:
    by_flavor = {each["flavor"]: each for each in found}
    wrong = [f"{path}.{name}: not expected" for name in by_flavor if name not in {e["flavor"] for e in expected}]
    fits = any(each["mode"] == "Fit" for each in expected) or not expected
    if fits:
        wrong = [] if not expected else wrong
    for each in expected:
        if each["flavor"] in by_flavor:
            wrong += differences(each, by_flavor[each["flavor"]], f"{path}.{each['flavor']}")
        elif not fits:
            wrong.append(f"{path}.{each['flavor']}: missing")
    return wrong


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
