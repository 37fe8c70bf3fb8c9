"""`nitro-card audit verify`: what it prints, and what it refuses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nitro_emu.trust.audit_log import AuditLog

Called = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "audit.log"
    with AuditLog(path) as made:
        for number in range(3):
            made.append(principal="root", uid=0, pid=1, call="map", arguments=b"%d" % number, outcome="ok")
    return path


def heads(log: Path) -> list[str]:
    return [json.loads(line)["chain"] for line in log.read_text(encoding="utf-8").splitlines()]


def test_number_of_records_and_head(called: Called, log: Path) -> None:
    done = called("audit", "verify", str(log))
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines()] == [["records", "3"], ["head", heads(log)[-1]]]


def test_head_that_was_kept_and_what_came_after(called: Called, log: Path) -> None:
    done = called("audit", "verify", str(log), "--head", heads(log)[1], "--json")
    assert json.loads(done.stdout) == {"records": 3, "head": heads(log)[2], "records_after_head": 1}


def test_changed_record_is_named(called: Called, log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b'"number":2', b'"number":4'))
    done = called("audit", "verify", str(log))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"nitro-card: {log}: record 2: has the number 4: records were removed, inserted or exchanged\n"
    )


@pytest.mark.parametrize("head", ["", "ab", "g" * 96])
def test_wrong_head_is_wrong_usage(called: Called, log: Path, head: str) -> None:
    done = called("audit", "verify", str(log), "--head", head)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
