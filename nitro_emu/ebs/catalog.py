"""Which volumes there are, and which servers have their replicas: a SQLite file of whoever creates and attaches them.

    with Catalog(path) as catalog:
        catalog.add(volume)
        catalog.volume("vol-1")

It has no data and no state of a volume: epochs and what was written are the servers'. A volume's key is in it wrapped
for one card (`nitro_emu.ebs.volume_key`).
"""

from __future__ import annotations

import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nitro_emu.closing import Closing
from nitro_emu.ebs.errors import VolumeError

DEFAULT_PATH: Final = Path("/var/lib/nitro-volume/volumes.db")

_APPLICATION_ID: Final = 0x53524443
"""'SRDC', in the file's header."""
_SCHEMA: Final = """
CREATE TABLE volumes (
    name TEXT PRIMARY KEY, id INTEGER UNIQUE NOT NULL, size_bytes INTEGER NOT NULL, wrapped_key BLOB NOT NULL,
    roster INTEGER NOT NULL
) STRICT;
CREATE TABLE replicas (
    volume TEXT NOT NULL REFERENCES volumes (name) ON DELETE CASCADE, position INTEGER NOT NULL,
    host TEXT NOT NULL, port INTEGER NOT NULL, domain TEXT NOT NULL, PRIMARY KEY (volume, position)
) STRICT;
"""
_WAIT_S: Final = 10.0
"""For another process that writes the file."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A volume server. `domain`: what fails with it, such as its rack."""

    host: str
    port: int
    domain: str


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume. `id`: its name on servers."""

    name: str
    id: int
    size_bytes: int
    wrapped_key: bytes
    replicas: tuple[ServerAddress, ...]
    roster: int = 0
    """How many servers have been replaced."""

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of the server of each replica."""
        return [(server.host, server.port) for server in self.replicas]


class Catalog(Closing):
    """The file, which is made if there is none. Raises VolumeError, which names it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._named():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=_WAIT_S)
            self._prepare()

    def _prepare(self) -> None:
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application != _APPLICATION_ID:
            raise VolumeError(f"{self._path}: is no catalog of volumes but another program's; give another --catalog")
        self._db.execute("PRAGMA foreign_keys = ON")
        if not tables:
            self._db.executescript(f"BEGIN; PRAGMA application_id = {_APPLICATION_ID}; {_SCHEMA} COMMIT;")

    def add(self, volume: Volume) -> None:
        """Add a volume. Raises VolumeError if there is one of that name."""
        with self._named(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            if self._db.execute("SELECT 1 FROM volumes WHERE name = ?", (volume.name,)).fetchone():
                raise VolumeError(f"there is a volume {volume.name} already; give another name")
            row = (volume.name, volume.id, volume.size_bytes, volume.wrapped_key, volume.roster)
            self._db.execute("INSERT INTO volumes VALUES (?, ?, ?, ?, ?)", row)
            self._db.executemany(
                "INSERT INTO replicas VALUES (?, ?, ?, ?, ?)",
                [(volume.name, at, each.host, each.port, each.domain) for at, each in enumerate(volume.replicas)],
            )

    def replace(self, volume: Volume, *, position: int, server: ServerAddress) -> Volume:
        """Put a server in the place of another one; return the volume. Raises VolumeError if it has changed."""
        replicas = (*volume.replicas[:position], server, *volume.replicas[position + 1 :])
        changed = replace(volume, replicas=replicas, roster=volume.roster + 1)
        with self._named(), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            done = self._db.execute(
                "UPDATE volumes SET roster = ? WHERE name = ? AND roster = ?",
                (changed.roster, volume.name, volume.roster),
            )
            if done.rowcount != 1:
                raise VolumeError(
                    f"volume {volume.name}: another process has replaced a server of it; look, and try again"
                )
            self._db.execute(
                "UPDATE replicas SET host = ?, port = ?, domain = ? WHERE volume = ? AND position = ?",
                (server.host, server.port, server.domain, volume.name, position),
            )
        return changed

    def volume(self, name: str) -> Volume:
        """Return a volume. Raises VolumeError if there is none of that name."""
        found = [volume for volume in self.volumes() if volume.name == name]
        if not found:
            raise VolumeError(f"{self._path}: there is no volume {name}; create it: nitro-volume create {name}")
        return found[0]

    def volumes(self) -> list[Volume]:
        """Return all volumes, by name."""
        with self._named():
            replicas: dict[str, list[ServerAddress]] = {}
            for name, host, port, domain in self._db.execute(
                "SELECT volume, host, port, domain FROM replicas ORDER BY volume, position"
            ):
                replicas.setdefault(name, []).append(ServerAddress(host, port, domain))
            rows = self._db.execute("SELECT name, id, size_bytes, wrapped_key, roster FROM volumes ORDER BY name")
            return [
                Volume(name, number, size_bytes, wrapped_key, tuple(replicas.get(name, ())), roster)
                for name, number, size_bytes, wrapped_key, roster in rows
            ]

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Have errors of SQLite and of the system name the file."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise VolumeError(f"{self._path}: cannot be used: {error}; give another --catalog") from error


def new_id() -> int:
    """Return an id that no volume has: 63 bits at random, which SQLite's integers hold."""
    return secrets.randbits(63) | 1


def position_of(address: tuple[str, int], *, volume: Volume, server: ServerAddress) -> int:
    """Return which replica of a volume is at an address, if another server may take its place. Raises VolumeError."""
    if address not in volume.addresses:
        at = ", ".join(f"{host}:{port}" for host, port in volume.addresses)
        raise VolumeError(f"volume {volume.name} is not on {address[0]}:{address[1]} but on {at}; give one of these")
    position = volume.addresses.index(address)
    others = [each for at, each in enumerate(volume.replicas) if at != position]
    if not others:
        raise VolumeError(
            f"volume {volume.name} has one replica, which nobody else has; copy its data to another volume"
        )
    for each in others:
        if server.domain == each.domain or (server.host, server.port) == (each.host, each.port):
            raise VolumeError(
                f"{server.host}:{server.port} would fail with {each.host}:{each.port}, which has a replica of "
                f"{volume.name} in {each.domain}; give a server in another domain"
            )
    if (server.host, server.port) == address:
        raise VolumeError(f"{server.host}:{server.port} is the one to be replaced; give another server")
    return position


def place(servers: Sequence[ServerAddress], *, replicas: int, volumes: Iterable[Volume]) -> tuple[ServerAddress, ...]:
    """Return the servers of a new volume: no two in one domain, and those first that have the fewest replicas.

    Raises VolumeError if there are too few domains.
    """
    used = Counter((server.host, server.port) for volume in volumes for server in volume.replicas)
    best: dict[str, ServerAddress] = {}
    for server in sorted(servers, key=lambda each: used[each.host, each.port]):
        best.setdefault(server.domain, server)
    chosen = sorted(best.values(), key=lambda each: used[each.host, each.port])[:replicas]
    if len(chosen) < replicas:
        domains = ", ".join(sorted(best)) or "none"
        raise VolumeError(
            f"{replicas} replicas need servers in {replicas} domains, and there are {len(best)} ({domains}); "
            "add servers in other racks, or take fewer --replicas"
        )
    return tuple(chosen)
