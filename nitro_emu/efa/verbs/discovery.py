"""Which devices a program can open: a card has one Unix socket for each, in one directory.

`nitro-card` creates DEVICE.sock for each virtual function, and control.sock for administration, which is no device. A
lab with several cards gives each its own directory; $NITRO_CARD_DIR names the one that this process uses.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from nitro_emu.errors import VerbsError

DIRECTORY_VARIABLE: Final = "NITRO_CARD_DIR"
DEFAULT_DIRECTORY: Final = Path("/run/nitro-card")
_SUFFIX: Final = ".sock"
_NO_DEVICE: Final = "control"


def card_directory() -> Path:
    """Return the directory of the card's sockets."""
    return Path(os.environ.get(DIRECTORY_VARIABLE) or DEFAULT_DIRECTORY)


def device_names(directory: Path | None = None) -> list[str]:
    """Return the devices' names in order; none without a card. `directory`: by default, `card_directory()`."""
    directory = directory or card_directory()
    try:
        found = sorted(path for path in directory.iterdir() if path.suffix == _SUFFIX)
    except OSError:
        return []
    return [path.stem for path in found if path.stem != _NO_DEVICE and _is_socket(path)]


def socket_path(name: str, *, directory: Path | None = None) -> Path:
    """Return the socket of a device. Raises VerbsError: no such device (ENODEV)."""
    directory = directory or card_directory()
    if name not in device_names(directory):
        raise VerbsError(
            errno.ENODEV,
            f"{name!r} is no device in {directory}; start a card, or name its directory in ${DIRECTORY_VARIABLE}",
        )
    return directory / (name + _SUFFIX)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False
