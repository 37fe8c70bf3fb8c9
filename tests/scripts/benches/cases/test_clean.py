"""scripts.benches.cases.clean: without a TCP to compare with, ours is measured."""

from __future__ import annotations

import shutil

import pytest

from scripts.benches.cases import clean
from scripts.benches.outcome import CaseOutcome
from scripts.benches.registry import CASES


@pytest.mark.root
def test_rounds__without_iperf3_ours_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    find, hidden = shutil.which, {need.name for need in clean.NEEDS}
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name in hidden else find(name, path=path))
    monkeypatch.setattr(clean, "LINKS", {"mtu9000": (9000, True)})
    wanted = tuple(each for each in clean.WANTED if each.figure.endswith("_mtu9000"))
    missing = {need.unmet or "": need.figures for need in CASES["clean"].needs}
    assert list(missing) == [
        "iperf3: not installed; install the package iperf3",
    ]
    found = CaseOutcome("clean", "veth", (clean.measure(1, 0.05),), wanted, missing)
    assert not found.checks
    assert not found.baselines
    assert found.ours.keys() == {"mtu9000_gbps", "mtu9000_cpu_s_per_gb"}
