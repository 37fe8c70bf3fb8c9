"""scripts/profile: shares add up, what only waits does not count, and both ends of a real run are seen."""

from __future__ import annotations

import cProfile
import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts.profiles.cli import main
from scripts.profiles.counters import function_shares, syscall_shares
from srd.proto.seqset import mask

ROOT = Path(__file__).resolve().parents[3]
STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 50.00    0.100000       50000         2           futex
 30.00    0.060000          60      1000        10 recvmmsg
 20.00    0.040000          40      1000           sendmmsg
------ ----------- ----------- --------- --------- ----------------
100.00    0.200000          99      2002        10 total
"""


def test_syscall_shares() -> None:
    receiving, sending = syscall_shares(STRACE)
    assert (receiving.name, receiving.calls, receiving.us_per_call) == ("recvmmsg", 1000, 60.0)
    assert (sending.name, sending.calls, sending.us_per_call) == ("sendmmsg", 1000, 40.0)
    assert (receiving.fraction, sending.fraction) == pytest.approx((0.6, 0.4))


@pytest.mark.sources
def test_function_shares__add_up_and_are_named_from_the_root(tmp_path: Path) -> None:
    profile = cProfile.Profile()
    profile.runcall(lambda: [mask(n) for n in range(200)])
    profile.dump_stats(tmp_path / "profile")
    shares = function_shares(tmp_path / "profile")
    assert sum(share.fraction for share in shares) == pytest.approx(1)
    assert shares == sorted(shares, key=lambda share: -share.fraction)
    (ours,) = (share for share in shares if share.name.endswith(" mask"))
    assert ours.name.startswith("srd/proto/seqset.py:")
    assert ours.calls == 200


@pytest.mark.root
@pytest.mark.long
@pytest.mark.timeout(600)
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
