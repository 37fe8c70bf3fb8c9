"""The volumes of a server, and what it has promised of them: SQLite, each change on the disk when the call returns."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nitro_emu.ebs.errors import VolumeError

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS volumes (
    id INTEGER PRIMARY KEY, size_bytes INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0, owner INTEGER NOT NULL DEFAULT 0, mark INTEGER NOT NULL DEFAULT 0,
    roster INTEGER NOT NULL DEFAULT 0
) STRICT
"""
_APPLICATION_ID: Final = 0x53524456
"""'SRDV', in the file's header."""


@dataclass(frozen=True, slots=True)
class VolumeRow:
    """A volume of this server."""

    id: int
    size_bytes: int
    epoch: int
    """Of the last promise: commands of an earlier one are refused."""
    owner: int
    """Who has got that promise."""
    mark: int
    """The last epoch that this replica was one of, with all that was decided at its beginning; -1: it has lost that."""
    roster: int = 0
    """How many of the volume's servers had been replaced at the last promise: writers that know of fewer are out."""


class Ledger:
    """The table of volumes. Raises VolumeError for a file that is something else."""

    def __init__(self, path: Path | str) -> None:
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            (application,) = self._db.execute("PRAGMA application_id").fetchone()
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if tables and application != _APPLICATION_ID:
                raise VolumeError(f"{path}: is no list of volumes but another program's; give another directory")
            self._db.execute("PRAGMA synchronous = EXTRA")
            self._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            self._db.execute(_SCHEMA)
        except sqlite3.Error as error:
            raise VolumeError(f"{path}: cannot be used: {error}; give another directory") from error

    def volumes(self) -> list[VolumeRow]:
        """Return all of them."""
        rows = self._db.execute("SELECT id, size_bytes, epoch, owner, mark, roster FROM volumes")
        return [VolumeRow(*row) for row in rows]

    def create(self, volume: int, *, size_bytes: int, mark: int = 0) -> None:
        """Add a volume; with a mark of -1 others have its data. Raises VolumeError if there is one of that id."""
        try:
            self._db.execute("INSERT INTO volumes (id, size_bytes, mark) VALUES (?, ?, ?)", (volume, size_bytes, mark))
        except sqlite3.Error as error:
            raise VolumeError(f"volume {volume:x}: cannot be added: {error}") from error

    def promise(self, volume: int, *, epoch: int, owner: int, roster: int) -> None:
        """Note a promise. Raises VolumeError."""
        self._change("UPDATE volumes SET epoch = ?, owner = ?, roster = ? WHERE id = ?", (epoch, owner, roster, volume))

    def mark(self, volume: int, *, epoch: int) -> None:
        """Note that it is a replica of the epoch; -1: of none any more. Raises VolumeError."""
        self._change("UPDATE volumes SET mark = ? WHERE id = ?", (epoch, volume))

    def _change(self, statement: str, values: tuple[int, ...]) -> None:
        try:
            self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise VolumeError(f"the list of volumes cannot be written: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()
