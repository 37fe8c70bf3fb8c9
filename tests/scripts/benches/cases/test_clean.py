"""scripts.benches.cases.clean: ours over the faster of the two TCPs, if there are any."""

from __future__ import annotations

import shutil

import pytest

from scripts.benches.cases import clean
from scripts.benches.cases.clean import ratios
from scripts.benches.outcome import CaseOutcome
from scripts.benches.registry import CASES

OURS = {"mtu9000_gbps": 30.0, "mtu9000_cpu_s_per_gb": 0.8}


def test_ratios() -> None:
    baselines = {
        "tcp_cubic": {"mtu9000_gbps": 10.0, "mtu9000_cpu_s_per_gb": 0.5},
        "tcp_bbr": {"mtu9000_gbps": 20.0, "mtu9000_cpu_s_per_gb": 1.0},
    }
    assert ratios(OURS, baselines, link="mtu9000") == {
        "tcp_ratio_mtu9000": 1.5,
        "cpu_per_gb_ratio_mtu9000": 0.8,
    }


@pytest.mark.root
def test_rounds__without_iperf3_ours_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    find, hidden = shutil.which, {need.name for need in clean.NEEDS}
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name in hidden else find(name, path=path))
    monkeypatch.setattr(clean, "LINKS", ((9000, True),))
    wanted = tuple(each for each in clean.WANTED if each.figure.endswith("_mtu9000"))
    missing = {need.unmet or "": need.figures for need in CASES["clean"].needs}
    assert list(missing) == [
        "iperf3: not installed; install the package iperf3",
    ]
    found = CaseOutcome("clean", "veth", tuple(clean.rounds(1, 0.05)), wanted, missing)
    assert not found.checks
    assert not found.baselines
    assert found.ours.keys() == {"mtu9000_gbps", "mtu9000_cpu_s_per_gb"}
