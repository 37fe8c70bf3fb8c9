"""scripts.harness.needs: why a need is not met, and that it is."""

from __future__ import annotations

import pytest

from scripts.harness.needs import Need, lacks, lacks_library


def test_lacks__names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lacks("ip") is None
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert lacks("redis-benchmark") == "redis-benchmark: not installed; install the package redis-tools"


def test_lacks_library__names_the_extra() -> None:
    assert Need("click", (), lacks_library).unmet is None
    assert Need("no_such", (), lacks_library).unmet == (
        "no_such: not installed; install it, in the checkout: pip install '.[bench]'"
    )
