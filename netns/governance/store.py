"""The jobs of a queue on disk: one SQLite file, whole after any crash, for any number of commands at once.

Each change is one transaction. What a job's processes do is not in it: they end with the `srd-lab queue run` that
started them (PR_SET_PDEATHSIG), so one that starts anew finds that all jobs marked as running have ended.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from netns.base.files import locked_file, write_whole
from netns.base.yaml_file import mapping_of, validated
from netns.errors import BackendError, GovernanceError, JobError
from netns.governance.model import FlavorResource
from netns.placement.job import WANTED, Job

LIVE: Final = ("pending", "running", "stopping")
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS jobs (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, queue TEXT NOT NULL, class TEXT NOT NULL, created REAL NOT NULL,
  job BLOB NOT NULL, phase TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '', message TEXT NOT NULL DEFAULT '',
  hosts TEXT NOT NULL DEFAULT '[]', restarts INTEGER NOT NULL DEFAULT 0, cancelled INTEGER NOT NULL DEFAULT 0,
  changed REAL NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS live ON jobs (name) WHERE phase IN ('pending', 'running', 'stopping');
CREATE TABLE IF NOT EXISTS used (
  job INTEGER NOT NULL, flavor TEXT NOT NULL, resource TEXT NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS drained (queue TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS cluster (file TEXT PRIMARY KEY, content BLOB NOT NULL);
"""
_NAMES: Final = "id, name, queue, class, created, job, phase, reason, message, hosts, restarts, cancelled, changed"
_DIGITS: Final = 18
"""Of a number that SQLite can hold."""
_BUSY_S: Final = 30.0
"""A command waits so long for another's transaction; each takes milliseconds."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as it is recorded."""

    id: int
    name: str
    queue: str
    """The key of its local queue: namespace/name."""
    priority_class: str
    created: float
    content: bytes
    """Its file."""
    job: Job
    phase: str
    """pending, running, stopping, done, failed or cancelled."""
    reason: str
    message: str
    hosts: tuple[str, ...]
    restarts: int
    cancelled: bool
    changed: float


class JobStore:
    """The file. A context manager."""

    def __init__(self, path: Path) -> None:
        """Open it, and make it if missing. Raises BackendError."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._base = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = FULL")
            self._base.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise BackendError(f"{path}: {error}; give another file with --state") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._base.close()

    @contextmanager
    def served(self) -> Iterator[None]:
        """Be the one that runs its jobs. Raises BackendError if another process does."""
        try:
            lock = locked_file(self.path.with_name(self.path.name + ".run"))
        except BlockingIOError:
            raise BackendError(f"{self.path}: another srd-lab queue run serves it; end that one first") from None
        try:
            yield
        finally:
            os.close(lock)

    def submit(self, content: bytes, *, queue: str, priority_class: str, now: float) -> int:
        """Record a job's file; return its number. Raises JobError; GovernanceError if one of its name has not ended."""
        job = _job(content)
        try:
            with self._transaction():
                made = self._base.execute(
                    "INSERT INTO jobs (name, queue, class, created, job, phase, changed) "
                    "VALUES (?, ?, ?, ?, ?, 'pending', ?)",
                    (job.name, queue, priority_class, now, content, now),
                )
        except sqlite3.IntegrityError:
            raise GovernanceError(
                f"job {job.name}: one of this name waits or runs; cancel it, or rename this"
            ) from None
        return int(made.lastrowid or 0)

    def rows(self, *, live: bool = False) -> list[JobRow]:
        """Return the jobs in the order of their submission; `live`: those that have not ended."""
        where = "WHERE phase IN ('pending', 'running', 'stopping')" if live else ""
        return [_row(each) for each in self._base.execute(f"SELECT {_NAMES} FROM jobs {where} ORDER BY id")]  # noqa: S608 - constants

    def find(self, name: str) -> JobRow:
        """Return the latest job of a name, or with a number. Raises GovernanceError."""
        found = self._base.execute(
            f"SELECT {_NAMES} FROM jobs WHERE name = ? OR id = ? ORDER BY id DESC LIMIT 1",  # noqa: S608 - a constant
            (name, int(name) if name.isdecimal() and len(name) < _DIGITS else -1),
        ).fetchone()
        if found is not None:
            return _row(found)
        raise GovernanceError(f"job {name}: no such job; srd-lab queue ls has them")

    def directory(self, row: JobRow) -> Path:
        """Return the directory of a job, which has its file, `job.yaml`, and what it saves."""
        made = self.path.with_name(self.path.name + ".jobs") / str(row.id)
        made.mkdir(parents=True, exist_ok=True)
        write_whole(made / "job.yaml", row.content)
        return made

    def cancel(self, name: str, *, now: float) -> JobRow:
        """Cancel a job: one that waits at once; one that runs is ended by who runs it. Raises GovernanceError."""
        with self._transaction():
            row = self.find(name)
            if row.phase not in LIVE:
                raise GovernanceError(f"job {row.name}: is {row.phase} already")
            phase = "cancelled" if row.phase == "pending" else row.phase
            self._base.execute(
                "UPDATE jobs SET cancelled = 1, phase = ?, changed = ? WHERE id = ?", (phase, now, row.id)
            )
        return self.find(str(row.id))

    def set_phase(
        self,
        row: int,
        phase: str,
        *,
        now: float,
        reason: str = "",
        message: str = "",
        hosts: tuple[str, ...] = (),
        used: Mapping[FlavorResource, int] | None = None,
    ) -> bool:
        """Record what has become of a live job; return False if it was cancelled meanwhile, and so is not started.

        `used`: the quota that it holds, until it no longer runs or stops.
        """
        with self._transaction():
            if phase != "stopping":
                self._base.execute("DELETE FROM used WHERE job = ?", (row,))
            (cancelled,) = self._base.execute("SELECT cancelled FROM jobs WHERE id = ?", (row,)).fetchone()
            if cancelled and phase in ("pending", "running"):
                self._base.execute("UPDATE jobs SET phase = 'cancelled', changed = ? WHERE id = ?", (now, row))
                return False
            self._base.execute(
                "UPDATE jobs SET restarts = restarts + (phase IN ('running', 'stopping') AND ? = 'pending'), "
                "phase = ?, reason = ?, message = ?, hosts = ?, changed = ? WHERE id = ?",
                (phase, phase, reason, message, json.dumps(hosts), now, row),
            )
            amounts = [(row, *fr, amount) for fr, amount in (used or {}).items()]
            self._base.executemany("INSERT INTO used VALUES (?, ?, ?, ?)", amounts)
        return True

    def used(self) -> dict[int, dict[FlavorResource, int]]:
        """Return the quota that the jobs hold which run or stop, by their numbers."""
        found: dict[int, dict[FlavorResource, int]] = {}
        for job, flavor, resource, amount in self._base.execute("SELECT job, flavor, resource, amount FROM used"):
            found.setdefault(job, {})[flavor, resource] = amount
        return found

    def explain(self, row: int, *, reason: str, message: str) -> None:
        """Record what a waiting job waits for."""
        with self._transaction():
            self._base.execute(
                "UPDATE jobs SET reason = ?, message = ? "
                "WHERE id = ? AND phase = 'pending' AND (reason, message) != (?, ?)",
                (reason, message, row, reason, message),
            )

    def recover(self, *, now: float) -> int:
        """Queue again what was running when the last server ended; return how many."""
        with self._transaction():
            self._base.execute("DELETE FROM used")
            self._base.execute(
                "UPDATE jobs SET phase = 'cancelled', changed = ? WHERE cancelled AND phase IN ('running', 'stopping')",
                (now,),
            )
            again = self._base.execute(
                "UPDATE jobs SET phase = 'pending', reason = 'NodeFailures', message = 'its server has ended', "
                "restarts = restarts + 1, changed = ? WHERE phase IN ('running', 'stopping')",
                (now,),
            )
        return again.rowcount

    def drain(self, queue: str, *, resume: bool) -> None:
        """Stop a cluster queue and all that runs in it, or let it go on."""
        with self._transaction():
            if resume:
                self._base.execute("DELETE FROM drained WHERE queue = ?", (queue,))
            else:
                self._base.execute("INSERT OR IGNORE INTO drained VALUES (?)", (queue,))

    def drained(self) -> set[str]:
        """Return the cluster queues that are stopped."""
        return {queue for (queue,) in self._base.execute("SELECT queue FROM drained")}

    def set_cluster(self, files: dict[str, bytes]) -> None:
        """Record the files that define the queues."""
        with self._transaction():
            self._base.execute("DELETE FROM cluster")
            self._base.executemany("INSERT INTO cluster VALUES (?, ?)", files.items())

    def cluster(self) -> dict[str, bytes]:
        """Return those files' contents."""
        return dict(self._base.execute("SELECT file, content FROM cluster ORDER BY file"))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")


def _job(content: bytes) -> Job:
    """Return the job in a file's content. Raises JobError."""
    return validated(Job, mapping_of(content, error=JobError, wanted=WANTED), error=JobError)


def _row(found: tuple[Any, ...]) -> JobRow:
    (
        number,
        name,
        queue,
        priority_class,
        created,
        content,
        phase,
        reason,
        message,
        hosts,
        restarts,
        cancelled,
        changed,
    ) = found
    return JobRow(
        number, name, queue, priority_class, created, content, _job(content), phase, reason, message,
        tuple(json.loads(hosts)), restarts, bool(cancelled), changed,
    )  # fmt: skip
