"""scripts/profile: shares add up, what only waits does not count, and both ends of a real run are seen."""

from __future__ import annotations

import cProfile
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts.profiles.cli import main
from scripts.profiles.reading import Share, function_shares, syscall_shares

ROOT = Path(__file__).resolve().parents[3]
STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.060000          60      1000        10 recvmmsg
 40.00    0.040000          40      1000           sendmmsg
------ ----------- ----------- --------- --------- ----------------
100.00    0.100000          50      2000        10 total
"""


def test_syscall_shares() -> None:
    assert syscall_shares(STRACE) == [Share("recvmmsg", 0.6, 1000, 60.0), Share("sendmmsg", 0.4, 1000, 40.0)]


def test_function_shares__add_up_and_are_named_from_the_root(tmp_path: Path) -> None:
    profile = cProfile.Profile()
    profile.runcall(lambda: [syscall_shares(STRACE) for _ in range(200)])
    profile.dump_stats(tmp_path / "profile")
    shares = function_shares(tmp_path / "profile")
    assert sum(share.fraction for share in shares) == pytest.approx(1)
    assert shares == sorted(shares, key=lambda share: -share.fraction)
    (ours,) = (share for share in shares if share.name.endswith(" syscall_shares"))
    assert ours.name.startswith("scripts/profiles/reading.py:")
    assert ours.calls == 200


@pytest.mark.root
def test_profile__both_ends_of_a_run() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "profile", "bulk", "--seconds", "0.05", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for end in ("sender", "receiver"):
        assert any("srd/io/driver.py" in share["name"] for share in found["functions"][end])
    assert "sendmmsg" in {share["name"] for share in found["system_calls"]["sender"]}
    assert "recvmmsg" in {share["name"] for share in found["system_calls"]["receiver"]}


def test_profile__wrong_usage() -> None:
    result = CliRunner().invoke(main, ["nonsense"])
    assert result.exit_code == 2
    assert "'nonsense' is not one of 'bulk', 'rate', 'ping'" in result.stderr
