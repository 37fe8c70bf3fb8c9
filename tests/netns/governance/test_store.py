"""The jobs on disk: whole after a crash, the same for all who look."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from netns.errors import BackendError, GovernanceError, JobError
from netns.governance.store import JobStore

JOB = b"{name: %s, ranks: 2, command: ['true'], resources: {cpu: 500m}}"


def _submit(store: JobStore, name: str, now: float = 1.0) -> int:
    return store.submit(JOB % name.encode(), queue="n/q", priority_class="", now=now)


def test_what_is_submitted_is_there_for_others(tmp_path: Path) -> None:
    with JobStore(tmp_path / "q") as one, JobStore(tmp_path / "q") as other:
        assert _submit(one, "a") == 1
        (row,) = other.rows(live=True)
        assert (row.name, row.phase, row.job.ranks, row.job.resources) == ("a", "pending", 2, {"cpu": 500})
        assert other.find("1") == other.find("a") == row


def test_two_who_submit_one_name_do_not_both_succeed(tmp_path: Path) -> None:
    def submit(_: int) -> bool:
        with JobStore(tmp_path / "q") as store:
            try:
                _submit(store, "a")
            except GovernanceError:
                return False
            return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(submit, range(8))) == 1


def test_a_job_that_was_cancelled_is_not_started(tmp_path: Path) -> None:
    with JobStore(tmp_path / "q") as store:
        number = _submit(store, "a")
        assert store.cancel("a", now=2.0).phase == "cancelled"
        assert not store.set_phase(number, "running", now=3.0)
        assert store.find("a").phase == "cancelled"
        with pytest.raises(GovernanceError, match="is cancelled already"):
            store.cancel("a", now=4.0)
        assert _submit(store, "a") == 2  # its name is free again


def test_a_running_job_that_is_cancelled_ends_first(tmp_path: Path) -> None:
    with JobStore(tmp_path / "q") as store:
        number = _submit(store, "a")
        assert store.set_phase(number, "running", now=2.0, hosts=("h1", "h2"))
        assert store.cancel("a", now=3.0).phase == "running"
        assert not store.set_phase(number, "pending", now=4.0)  # it does not wait again
        assert store.find("a").phase == "cancelled"


def test_after_a_crash_what_ran_waits_again(tmp_path: Path) -> None:
    with JobStore(tmp_path / "q") as store:
        for name in ("runs", "stops", "waits", "cancelled"):
            _submit(store, name)
        for number, phase in ((1, "running"), (2, "stopping"), (4, "running")):
            store.set_phase(number, phase, now=2.0)
        store.cancel("cancelled", now=3.0)
        assert store.recover(now=4.0) == 2
        found = {row.name: (row.phase, row.restarts) for row in store.rows()}
    assert found == {
        "runs": ("pending", 1),
        "stops": ("pending", 1),
        "waits": ("pending", 0),
        "cancelled": ("cancelled", 0),
    }


def test_one_serves_at_a_time(tmp_path: Path) -> None:
    with (
        JobStore(tmp_path / "q") as store,
        JobStore(tmp_path / "q") as other,
        store.served(),
        pytest.raises(BackendError, match="another srd-lab queue run serves it"),
        other.served(),
    ):
        pass


_WRITER = """
import sys
from pathlib import Path
from netns.governance.store import JobStore
with JobStore(Path(sys.argv[1])) as store:
    number = 0
    while True:
        number += 1
        job = b"{name: j%d, ranks: 1, command: ['true']}" % number
        made = store.submit(job, queue="n/q", priority_class="", now=0.0)
        store.set_phase(made, "running", now=1.0, hosts=("h1",))
        print(number, flush=True)
"""


def test_a_kill_at_any_point_leaves_whole_records(tmp_path: Path) -> None:
    """What was said to be recorded is there, and nothing is half there."""
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path / "q")], stdout=subprocess.PIPE, cwd=Path.cwd()
    )
    assert writer.stdout is not None
    said = [int(writer.stdout.readline()) for _ in range(5)][-1]
    writer.send_signal(signal.SIGKILL)
    said = max([said, *map(int, writer.stdout.read().split())])
    writer.wait()
    writer.stdout.close()
    with JobStore(tmp_path / "q") as store:
        rows = store.rows()
        assert [row.name for row in rows] == [f"j{number}" for number in range(1, len(rows) + 1)]
        assert len(rows) >= said
        assert all(row.phase == "running" and row.hosts == ("h1",) for row in rows[:said])
        assert store.recover(now=9.0) >= said


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"no database" * 100)
    with pytest.raises(BackendError, match="give another file with --state"):
        JobStore(tmp_path / "bad")
    with JobStore(tmp_path / "q") as store:
        with pytest.raises(JobError, match="ranks"):
            store.submit(b"{name: a}", queue="n/q", priority_class="", now=0.0)
        with pytest.raises(GovernanceError, match="job x: no such job"):
            store.find("x")
