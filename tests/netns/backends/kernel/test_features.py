"""netns.backends.kernel.features: available features, and reasons for missing ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import netns.backends.kernel.features
from netns.backends.kernel.features import missing_ipv6, missing_link, missing_resilient
from netns.errors import BackendError


@pytest.mark.root
def test_missing_link() -> None:
    assert missing_link("veth") is None
    assert missing_link("nonesuch") == "Operation not supported"


@pytest.mark.root
def test_missing_resilient(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_resilient() is None

    def refused(*_arguments: str) -> str:
        raise BackendError("ip: refused")

    monkeypatch.setattr(netns.backends.kernel.features, "run_tool", refused)
    assert missing_resilient() == "ip: refused"


def test_missing_ipv6(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert missing_ipv6() is None
    monkeypatch.setattr(netns.backends.kernel.features, "IPV6_INTERFACES", tmp_path / "none")
    assert missing_ipv6() == f"there is no {tmp_path}/none"
