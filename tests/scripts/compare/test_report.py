from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest

from scripts.compare.errors import CompareError
from scripts.compare.report import Report, all_srd_verified, checks, read, write, write_bytes


def test_build__has_the_keys_that_are_promised(report: Report) -> None:
    assert report["fabric"] == "relay"
    assert report["capacity_bps"] == 1_000_000_000
    promised = {"goodput_bps", "seconds", "retransmitted_fraction", "longest_stall_ms", "path_shares", "sha256_ok"}
    for by_key in report["conditions"].values():
        assert set(by_key) == {"srd", "tcp-cubic"}
        for figure in by_key.values():
            assert promised <= set(figure)


def test_write__can_be_read(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    write(report, path)
    assert read(path) == json.loads(json.dumps(report))
    assert [entry.name for entry in path.parent.iterdir()] == ["report.json"]


def test_write__unwritable_bad_flow(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompareError, match=r"file/report\.json"):
        write_bytes(b"", tmp_path / "file" / "report.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"conditions": 3}', "\x00"])
def test_read__bad_flow(text: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(CompareError, match=r"report.json: .*make demo"):
        read(path)


def test_read__missing_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(CompareError, match="No such file"):
        read(tmp_path / "report.json")


@pytest.mark.parametrize("key", ["completed", "sha256_ok"])
def test_all_srd_verified(report: Report, key: str) -> None:
    assert all_srd_verified(report)  # though TCP stalls in it
    broken = deepcopy(report)
    broken["conditions"]["clean"]["srd"][key] = False
    assert not all_srd_verified(broken)
    del broken["conditions"]["clean"]["srd"]
    assert not all_srd_verified(broken)


def _figures(goodput_bps: int, resent: float | None) -> dict[str, float | None]:
    return {"goodput_bps": goodput_bps, "retransmitted_fraction": resent}


def test_checks__of_what_took_part() -> None:
    conditions = {
        "clean": {"srd": _figures(900, 0.5), "mptcp": _figures(1000, 0.01)},
        "loss": {"srd": _figures(600, 0.03), "mptcp": _figures(500, 0.01)},
        "blackhole": {"srd": _figures(600, 0.1), "tcp-cubic": _figures(40, 0.01)},
    }
    found = checks(conditions)
    assert {name: (check["value"], check["met"]) for name, check in found.items()} == {
        "mptcp_ratio_clean": (0.9, False),
        "resent_fraction_loss": (0.03, True),
        "mptcp_ratio_loss": (1.2, True),
    }
    assert not checks({"loss": {"srd": _figures(600, 0.0301)}})["resent_fraction_loss"]["met"]
    assert checks({"loss": {"mptcp": _figures(500, 0.01)}}) == {}
    assert checks({"loss": {"srd": _figures(600, None)}}) == {}
