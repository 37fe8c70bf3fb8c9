"""The run directory: one card serves it, and removes from it what it has made, by recorded names.

    with RunDirectory.claim(config.run_dir, names=("efa_0", "control")) as directory:
        ...                                  # bind directory.socket("efa_0")

The lock file is locked (flock) as long as its card lives, whatever ends it, and records the sockets that the card
makes. So the next card knows which sockets a dead one has left, and removes them; it touches no other file.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from netns.base.files import locked_file
from netns.base.names import is_name
from nitro_emu.closing import Closing
from nitro_emu.errors import CardError

CONTROL_SOCKET: Final = "control.sock"
"""The control socket's name in the run directory."""

LOCK_FILE: Final = "card.lock"

MAX_NAMED: Final = 4
"""Of directories in a message."""

MAX_RECORD_BYTES: Final = 64 << 10
"""Of a lock file: 256 names of 32 characters take 9 KiB."""


def remedy(path: Path, *, option: str) -> str:
    """Return what to do where no card serves a directory: cards that serve others beside it are named."""
    with suppress(OSError):
        others = sorted(str(each.parent) for each in path.parent.glob(f"*/{CONTROL_SOCKET}") if each.parent != path)
        if others:
            more = " ..." if len(others) > MAX_NAMED else ""
            return f"cards run in {', '.join(others[:MAX_NAMED])}{more}: name one with {option}"
    return f"start one with nitro-card run, or name its directory with {option}"


class RunDirectory(Closing):
    """A run directory that this process has locked; `claim` makes one."""

    def __init__(self, path: Path, *, lock: int, names: Sequence[str], made: bool) -> None:
        self.path = path
        self._lock = lock  # the lock file's descriptor
        self._names = names
        self._made = made  # whether this process made the directory, or one that ended without removing it
        self._is_kept = False

    @classmethod
    def claim(cls, path: Path, *, names: Sequence[str]) -> Self:
        """Lock the directory, which is made if missing, remove a dead card's sockets, and record the names of ours.

        Raises CardError if another card serves it, or if it cannot be used.
        """
        try:
            made = _make(path)
            lock = locked_file(path / LOCK_FILE)
        except BlockingIOError:
            raise CardError(f"{path}: a card serves it already; stop it, or set another run_dir") from None
        except OSError as error:
            raise CardError(f"{path}: cannot be used: {error.strerror}; set run_dir to another directory") from error
        try:
            recorded, made_before = _recorded_untrusted(lock)
            for name in recorded:
                _remove_socket(path / f"{name}.sock")
            made |= made_before
            ours = [name for name in names if not os.path.lexists(path / f"{name}.sock")]  # others are not of a card
            os.ftruncate(lock, 0)
            os.pwrite(lock, json.dumps({"pid": os.getpid(), "sockets": ours, "made": made}).encode(), 0)
        except OSError as error:
            os.close(lock)
            raise CardError(f"{path}: cannot be used: {error.strerror}; set run_dir to another directory") from error
        return cls(path, lock=lock, names=ours, made=made)

    def socket(self, name: str) -> Path:
        """Return the path of one of the sockets."""
        return self.path / f"{name}.sock"

    def keep(self) -> None:
        """Let `close` leave the directory and its lock file to the next card, which is about to replace this one."""
        self._is_kept = True

    def close(self) -> None:
        """Remove the sockets, the lock file, and the directory if this process made it and nothing else is in it."""
        with suppress(OSError):  # the directory has been removed
            for name in self._names:
                _remove_socket(self.socket(name))
            if not self._is_kept:
                (self.path / LOCK_FILE).unlink()  # before the lock ends, so that no other card has locked it
        os.close(self._lock)
        if self._made and not self._is_kept:
            with suppress(OSError):  # not empty, or gone
                self.path.rmdir()


def _make(path: Path) -> bool:
    """Make the directory, which users of other VFs may enter; return whether it was missing."""
    try:
        path.mkdir(mode=0o755, parents=True)
    except FileExistsError:
        return False
    return True


def _recorded_untrusted(lock: int) -> tuple[list[str], bool]:
    """Return the names of the sockets that the last card recorded, and whether it had made the directory.

    Nothing if it recorded nothing that can be read.
    """
    try:
        record = json.loads(os.pread(lock, MAX_RECORD_BYTES, 0))
    except (ValueError, RecursionError):
        return [], False
    if not isinstance(record, dict) or not isinstance(names := record.get("sockets"), list):
        return [], False
    return [name for name in names if isinstance(name, str) and is_name(name)], record.get("made") is True


def _remove_socket(path: Path) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
