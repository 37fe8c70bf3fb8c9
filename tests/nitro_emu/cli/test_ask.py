"""`nitro-card status`, `stats`, `logs` and `attest`, of a card in another process."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.nitro_emu.processes import nitro_card

Called = Callable[..., subprocess.CompletedProcess[str]]


def test_status_is_fields_and_a_table(called: Called, run_dir: Path) -> None:
    done = called("status", "--run-dir", str(run_dir))
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines == [["name", "card"], [], ["vf", "state"], ["efa_0", "ready"], ["efa_1", "ready"]]


def test_status_json(called: Called, run_dir: Path) -> None:
    done = called("status", "--run-dir", str(run_dir), "--json")
    assert json.loads(done.stdout)["vfs"]["efa_1"] == {"state": "ready"}


def test_stats_leaves_out_what_is_0(called: Called, run_dir: Path) -> None:
    done = called("metrics", "--run-dir", str(run_dir))
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines == [["counter", "efa_0", "efa_1"], ["qps", "2", "2"], ["cqs", "1", "1"]]


def test_stats_all(called: Called, run_dir: Path) -> None:
    done = called("metrics", "--run-dir", str(run_dir), "--all")
    assert len(done.stdout.splitlines()) == 1 + 22 + 12 + 2 + 2


def test_stats_json(called: Called, run_dir: Path) -> None:
    found = json.loads(called("metrics", "--run-dir", str(run_dir), "--json").stdout)
    assert found["vfs"]["efa_0"]["port"]["tx_bytes"] == 0


def test_stats_prometheus(called: Called, run_dir: Path) -> None:
    done = called("metrics", "--run-dir", str(run_dir), "--prometheus")
    names = {family.name for family in text_string_to_metric_families(done.stdout)}
    assert {"efa_tx_bytes", "efa_submitted_cmds", "efa_qkey_viol", "efa_resources"} <= names


def test_stats_in_two_forms_at_once_is_wrong_usage(called: Called) -> None:
    done = called("metrics", "--json", "--prometheus")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_logs(called: Called, run_dir: Path) -> None:
    done = called("logs", "--run-dir", str(run_dir))
    assert done.stdout.endswith("info    nitro_emu.device: started\n")
    record = json.loads(called("logs", "--run-dir", str(run_dir), "--json-lines").stdout)
    assert (record["number"], record["message"], record["level"]) == (1, "started", "info")


def test_logs_follow_until_interrupted(run_dir: Path) -> None:
    with nitro_card("logs", "--run-dir", str(run_dir), "-f") as following:
        assert (following.stdout.next() or "").endswith("started")
        following.kill(signal.SIGINT)
        assert following.wait() == 0
        assert following.stderr.all() == []


@pytest.mark.parametrize("command", ["status", "metrics", "logs", "attest"])
def test_without_a_card_is_one_line(called: Called, tmp_path: Path, command: str) -> None:
    done = called(command, "--run-dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"nitro-card: {tmp_path}: no card answers there (No such file or directory); start one with nitro-card run, or "
        "name its directory with --run-dir\n"
    )


def test_run_dir_is_taken_from_the_environment(called: Called, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NITRO_CARD_DIR", str(run_dir))
    assert called("status").returncode == 0
