from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest

from scripts.compare.errors import CompareError
from scripts.compare.report import Report, all_srd_verified, read, write, write_bytes


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
