"""The record of each lab, on disk: written before an object is created, so that any later command can remove it.

    /run/srd-lab/NAME/state.json    this record, replaced atomically
    /run/srd-lab/NAME/shape.LINK.DIRECTION.json    the current shape of a direction that was changed, with what ends
    /run/srd-lab/NAME/failure.KEY.json    an active failure
    /run/srd-lab/NAME/relay.json    the relay's specification; relay.sock its control socket; relay.log its output

A reboot clears /run, as it removes namespaces. One lock on the directory serialises building and removing labs; the
kernel releases it when the process that holds it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from netns.base.files import write_whole
from netns.errors import BackendError, LabError, TopologyError
from netns.lab.plan import Backend, namespace
from netns.netem.changes import AnyShape, shape_from_dict
from netns.processes import ProcessIdentity
from netns.topology.model import Topology, check_lab_name

ROOT: Final = Path("/run/srd-lab")

Phase = Literal["coming up", "up", "going down"]


@dataclass(frozen=True, slots=True)
class LabState:
    """The record of one lab."""

    topology: Topology
    """The topology as requested."""

    backend: Backend
    """What carries its shaped links."""

    reason: str
    """Why this backend was chosen."""

    phase: Phase = "coming up"
    """Progress; a lab that is not "up" although nobody holds the lock crashed on the way."""

    namespaces: tuple[str, ...] = ()
    """The namespaces that exist, or are about to."""

    relay: ProcessIdentity | None = None
    """The relay; None on the kernel backend, and before it is started."""

    owner: ProcessIdentity | None = None
    """The process whose `with` block the lab belongs to; None if the lab outlives its creator."""

    capture_processes: tuple[ProcessIdentity, ...] = ()
    """The processes of the topology's captures."""

    notes: tuple[str, ...] = ()
    """Features that this kernel lacks, for the user."""


_RECORD: Final = TypeAdapter(LabState)


@dataclass(frozen=True, slots=True)
class Failure:
    """One active failure of one link or node (netns/faults/faults.py)."""

    name: str
    """The link or node."""

    links: tuple[str, ...]
    """The links that it affects."""

    key: str
    """Distinguishes it from other failures of the same name."""

    carrier: bool = False
    """Whether the carrier is lost, too."""


@dataclass(frozen=True, slots=True)
class LabDirectory:
    """The directory of one lab's record and of its relay's files."""

    name: str

    def __post_init__(self) -> None:
        check_lab_name(self.name)  # it becomes a path, and `down` removes everything below it

    @property
    def path(self) -> Path:
        """The directory."""
        return ROOT / self.name

    @property
    def relay_spec(self) -> Path:
        """The relay's specification."""
        return self.path / "relay.json"

    @property
    def relay_control(self) -> Path:
        """The relay's control socket."""
        return self.path / "relay.sock"

    @property
    def relay_log(self) -> Path:
        """The relay's standard output and error."""
        return self.path / "relay.log"

    def read(self) -> LabState | None:
        """Read the record; None if there is no such lab. BackendError if it is invalid."""
        state_path = self.path / "state.json"
        try:
            state = _RECORD.validate_json(state_path.read_bytes())
            self._check(state)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, LabError) as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise BackendError(
                f"{state_path}: not a lab's record ({reason}); delete its namespaces ({self.name}-...) and the file"
            ) from None
        return state

    def _check(self, state: LabState) -> None:
        """Raise BackendError if the record names objects of another lab, because `down` removes what it names."""
        if state.topology.name != self.name:
            raise BackendError(f"it is of lab {state.topology.name}")
        own = {namespace(state.topology, node) for node in state.topology.nodes}
        for netns in state.namespaces:
            if netns not in own:
                raise BackendError(f"namespace {netns} is not of its topology")

    def write(self, state: LabState) -> None:
        """Replace the record, atomically for any reader."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / "state.json", json.dumps(asdict(state), indent=1).encode())

    def shape(self, link: str, *, direction: str) -> AnyShape | None:
        """Return the current shape of a direction that was changed; None if it is as it was built."""
        try:
            return shape_from_dict(json.loads(self._shape_path(link, direction).read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, LabError) as error:
            raise BackendError(f"{self._shape_path(link, direction)}: not a shape ({error}); delete the file") from None

    def write_shape(self, link: str, *, direction: str, shape: AnyShape) -> None:
        """Record a change, in a file of its own, so that concurrent changes of other links do not conflict."""
        path = self._shape_path(link, direction)
        write_whole(path, json.dumps(shape.to_dict()).encode())

    def _shape_path(self, link: str, direction: str) -> Path:
        return self.path / f"shape.{link}.{direction}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Wait for, and hold, the lock under which one process at a time changes shapes of this lab."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise BackendError(f"lab {self.name}: is not up any more ({error.strerror})") from None
        with _locked(fd):
            yield

    def failures(self) -> tuple[Failure, ...]:
        """Return the active failures. BackendError for an invalid record."""
        found = []
        for path in sorted(self.path.glob("failure.*.json")):
            try:
                values = json.loads(path.read_text())
                key = path.name.split(".")[1]
                found.append(Failure(values["name"], tuple(values["links"]), key, values["carrier"]))
            except FileNotFoundError:  # repaired meanwhile
                continue
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                raise BackendError(f"{path}: not a record of a failure ({error}); delete the file") from None
        return tuple(found)

    def write_failure(self, failure: Failure) -> None:
        """Record a failure, in a file of its own."""
        values = {"name": failure.name, "links": failure.links, "carrier": failure.carrier}
        write_whole(self._failure_path(failure), json.dumps(values).encode())

    def remove_failure(self, failure: Failure) -> None:
        """Remove the record of a failure, if there is one."""
        self._failure_path(failure).unlink(missing_ok=True)

    def _failure_path(self, failure: Failure) -> Path:
        return self.path / f"failure.{failure.key}.json"

    def remove(self) -> None:
        """Remove the directory, after everything else of the lab."""
        shutil.rmtree(self.path, ignore_errors=True)


def recorded_labs() -> list[str]:
    """Return the names of the labs that have a record, sorted."""
    return sorted(path.parent.name for path in ROOT.glob("*/state.json") if _may_be_lab(path.parent))


def leftover_directories() -> list[LabDirectory]:
    """Return the directories of labs without a record: their objects are removed, or were never created."""
    return [
        LabDirectory(path.name)
        for path in sorted(ROOT.glob("*"))
        if _may_be_lab(path) and not (path / "state.json").exists()
    ]


def _may_be_lab(path: Path) -> bool:
    """Return whether a lab can have the directory `path`: other files in ROOT are not touched, links not followed."""
    try:
        check_lab_name(path.name)
    except TopologyError:
        return False
    return path.is_dir() and not path.is_symlink()


@contextmanager
def locked() -> Iterator[None]:
    """Wait for, and hold, the lock under which one process at a time builds or removes labs."""
    try:
        ROOT.mkdir(parents=True, exist_ok=True)
        fd = os.open(ROOT, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BackendError(f"{ROOT}: {error.strerror}; labs are made by root") from None
    with _locked(fd):
        yield


@contextmanager
def _locked(fd: int) -> Iterator[None]:
    """Wait for, and hold, the lock of an open file; then close it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)  # also for a fork that has it still
        os.close(fd)
