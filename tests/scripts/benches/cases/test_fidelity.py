"""scripts.benches.cases.fidelity: what is measured where netem runs nowhere."""

from __future__ import annotations

import shutil

import pytest

from netns.backends.kernel.capabilities import missing_netem
from netns.backends.uml import KERNEL
from scripts.benches.cases import fidelity
from scripts.benches.outcome import CaseOutcome


@pytest.mark.root
def test_measure__without_netem_the_relays_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    if missing_netem() is None:
        pytest.skip("this kernel has netem")
    find = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None if name == KERNEL else find(name, path=path))
    (need,) = fidelity.NEEDS
    assert need.unmet == "linux.uml: not installed; install the package user-mode-linux (this kernel has no netem)"
    found = CaseOutcome("fidelity", "relay", (fidelity.measure(1),), fidelity.WANTED, {need.unmet: need.figures})
    assert {each.figure: value for each, value in found.checks.items()} == {"seed_failed": 0}
    assert {each.figure for each in found.unmeasured} == set(need.figures)
