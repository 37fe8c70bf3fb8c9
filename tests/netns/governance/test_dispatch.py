"""Jobs as processes: who is preempted saves, ends, waits, and resumes; what crashes is started again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from netns.governance.cluster import Cluster
from netns.governance.dispatch import Dispatcher
from netns.governance.model import LocalQueue
from netns.governance.settings import Settings
from netns.governance.store import JobRow, JobStore
from netns.inventory.fabric_layers import nodes_of
from netns.placement.model import ResourceFlavor
from netns.topology.model import leaf_spine
from tests.netns.governance_world import ANY, group, queue
from tests.patience import PATIENCE_S

NODES = nodes_of(leaf_spine(leaves=2, spines=1, hosts_per_leaf=2))
QUEUES = (
    queue("a", groups=(group(f=2),), preemption=ANY),
    queue("b", groups=(group(f=2),), preemption=ANY),
)
CLUSTER = Cluster(
    flavors=(ResourceFlavor("f"),),
    queues=QUEUES,
    local_queues=(LocalQueue("n/a", "a"), LocalQueue("n/b", "b")),
    priorities={"high": 10},
)
SAVING = """
trap 'echo saved > "$CHECKPOINT_DIR/saved"; exit 3' TERM
if [ -e "$CHECKPOINT_DIR/saved" ]; then echo resumed $RESTART_COUNT; exit 0; fi
echo started; while :; do sleep 0.02; done
"""
STUBBORN = "trap '' TERM; echo started; while :; do sleep 0.02; done"
ONCE = "exit 0"


def _job(name: str, ranks: int, topology: str = "") -> bytes:
    return f"{{name: {name}, ranks: {ranks}, command: ['true'], resources: {{cpu: 1m}}{topology}}}".encode()


class _Server:
    """A dispatcher whose jobs are shell scripts by name."""

    def __init__(
        self, store: JobStore, scripts: dict[str, str], *, cluster: Cluster = CLUSTER, grace_s: float = PATIENCE_S
    ) -> None:
        self.scripts, self.said = scripts, list[str]()
        self.lines: list[tuple[str, str]] = []
        self.store = store
        self.dispatcher = Dispatcher(
            store, cluster, NODES, command=self._command, tell=self.said.append,
            on_line=lambda job, _stream, line: self.lines.append((job, line)), grace_s=grace_s,
        )  # fmt: skip

    def _command(self, row: JobRow, hosts: Sequence[str]) -> list[str]:
        assert len(hosts) == row.job.ranks
        return ["sh", "-c", self.scripts[row.name]]

    def until(self, condition: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at, self.said
            self.dispatcher.turn()

    def phase(self, name: str) -> str:
        return self.store.find(name).phase


def test_a_borrower_gives_way_and_resumes(tmp_path: Path) -> None:
    with JobStore(tmp_path / "q") as store:
        server = _Server(store, {"borrower": SAVING, "owner": ONCE})
        with server.dispatcher.children:
            store.submit(_job("borrower", 4), queue="n/b", priority_class="", now=1.0)
            server.until(lambda: ("borrower", "started") in server.lines)
            assert store.used() == {1: {("f", "cpu"): 4}}
            store.submit(_job("owner", 2, ", topology: {required: 3}"), queue="n/a", priority_class="high", now=2.0)
            server.until(lambda: server.phase("borrower") == "done")
        assert ("borrower", "resumed 1") in server.lines
        assert server.phase("owner") == "done"
        assert "borrower: gives way to owner (InCohortReclamation)" in server.said
        assert store.find("borrower").restarts == 1
        assert store.used() == {}


def test_who_does_not_end_is_killed_after_the_grace(tmp_path: Path) -> None:
    with JobStore(tmp_path / "q") as store:
        server = _Server(store, {"stubborn": STUBBORN}, grace_s=0.1)
        with server.dispatcher.children:
            store.submit(_job("stubborn", 2), queue="n/a", priority_class="", now=1.0)
            server.until(lambda: ("stubborn", "started") in server.lines)
            store.cancel("stubborn", now=2.0)
            server.until(lambda: server.phase("stubborn") == "cancelled")


def test_a_job_that_runs_is_ready_and_blocks_no_admission(tmp_path: Path) -> None:
    """With waitForPodsReady.blockAdmission the next job is admitted once the processes of the last one run."""
    cluster = replace(CLUSTER, settings=Settings(block_admission=True))
    with JobStore(tmp_path / "q") as store:
        server = _Server(store, {"one": SAVING, "two": ONCE}, cluster=cluster)
        with server.dispatcher.children:
            for name in ("one", "two"):
                store.submit(_job(name, 1), queue="n/a", priority_class="", now=1.0)
            server.until(lambda: server.phase("two") == "done")
            assert server.phase("one") == "running"


def test_a_drained_queue_stops_and_goes_on(tmp_path: Path) -> None:
    with JobStore(tmp_path / "q") as store:
        server = _Server(store, {"job": SAVING})
        with server.dispatcher.children:
            store.submit(_job("job", 2), queue="n/a", priority_class="", now=1.0)
            server.until(lambda: ("job", "started") in server.lines)
            store.drain("a", resume=False)
            server.until(lambda: server.phase("job") == "pending")
            assert store.find("job").reason == "ClusterQueueStopped"
            store.drain("a", resume=True)
            server.until(lambda: server.phase("job") == "done")


def test_a_failed_job_has_its_last_words_and_frees_its_quota(tmp_path: Path) -> None:
    with JobStore(tmp_path / "q") as store:
        server = _Server(store, {"bad": "echo no luck >&2; exit 4", "next": ONCE})
        with server.dispatcher.children:
            store.submit(_job("bad", 4), queue="n/a", priority_class="", now=1.0)
            store.submit(_job("next", 4), queue="n/a", priority_class="", now=2.0)
            server.until(lambda: server.phase("next") == "done")
        assert (server.phase("bad"), store.find("bad").message) == ("failed", "status 4: no luck")


def test_why_a_job_waits_is_recorded(tmp_path: Path) -> None:
    with JobStore(tmp_path / "q") as store:
        server = _Server(store, {})
        with server.dispatcher.children:
            store.submit(_job("large", 5), queue="n/a", priority_class="", now=1.0)
            store.submit(_job("lost", 1), queue="n/nowhere", priority_class="", now=1.0)
            server.dispatcher.turn()
        assert store.find("large").reason == "ExceedsMaxQuota"
        assert store.find("lost").message == "LocalQueue n/nowhere not found"


def test_a_server_that_starts_anew_starts_the_jobs_anew(tmp_path: Path) -> None:
    with JobStore(tmp_path / "q") as store:
        number = store.submit(_job("job", 2), queue="n/a", priority_class="", now=1.0)
        store.set_phase(number, "running", now=2.0)  # and its server was killed
        server = _Server(store, {"job": ONCE})
        with server.dispatcher.children:
            server.until(lambda: server.phase("job") == "done")
        assert store.find("job").restarts == 1
