from __future__ import annotations

import pytest

from scripts.compare import figures


@pytest.mark.parametrize(("bps", "text"), [(964_300_000, "964"), (9_960_000, "10.0"), (440_000, "0.4"), (0, "0.0")])
def test_mbit(bps: float, text: str) -> None:
    assert figures.mbit(bps) == text


def test_gbit() -> None:
    assert figures.gbit(1_000_000_000) == "1 Gbit/s"
    assert figures.gbit(250_000_000) == "250 Mbit/s"


def test_seconds() -> None:
    assert figures.seconds(2.234) == "2.23"
    assert figures.seconds(None) == "-"


@pytest.mark.parametrize(("fraction", "text"), [(None, "-"), (0, "0.00 %"), (0.0123, "1.23 %"), (0.5, "50 %")])
def test_percent(fraction: float | None, text: str) -> None:
    assert figures.percent(fraction) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0.0"), (9.94, "9.9"), (12.4, "12"), (14778.0, "14 778")])
def test_milliseconds(value: float, text: str) -> None:
    assert figures.milliseconds(value) == text


def test_mebibytes() -> None:
    assert figures.mebibytes(256 << 20) == "256 MiB"
    assert figures.mebibytes(10_000_000) == "9.537 MiB"
    assert figures.mebibytes(17) == "17 bytes"


def test_path_shares() -> None:
    assert figures.path_shares([0.251, 0.249, 0.5, 0]) == "25 25 50 0"


def test_verification() -> None:
    assert figures.verification(completed=True, sha256_ok=True) == "ok"
    assert figures.verification(completed=True, sha256_ok=False) == "WRONG"
    assert figures.verification(completed=False, sha256_ok=False) == "incomplete"
