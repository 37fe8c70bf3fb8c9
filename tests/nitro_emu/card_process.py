"""A card as a process of its own, for tests: started, waited for, ended by SIGTERM."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.nitro_emu.processes import card_file, nitro_card

LOOPBACK: Final = "name: efa_0, address: 127.0.0.1, port: 0, security: {mode: plain}"


@contextmanager
def running_card(directory: Path, *, vfs: Sequence[str], more: str = "") -> Iterator[Path]:
    """Run a card until the end of the block; gives the directory of its sockets. Fails if it does not exit with 0.

    `vfs`: the virtual functions, each as one line of YAML without braces; `more`: other settings.
    """
    directory.mkdir(exist_ok=True)
    run_dir = directory / "run"
    with nitro_card("run", str(card_file(directory, vfs=vfs, more=more)), "--json") as process:
        process.event("ready")
        try:
            yield run_dir
        finally:
            process.kill(signal.SIGTERM)
            status = process.wait()
            log = "\n".join(process.stderr.all())
        assert status == 0, log
        assert "Traceback" not in log, log


def devices_of(directory: Path, *, cards: dict[str, Path]) -> Path:
    """Make a directory with devices of several cards: `cards` has each name there, and the socket that it stands for."""
    directory.mkdir()
    for name, socket in cards.items():
        (directory / f"{name}.sock").symlink_to(socket)
    return directory


def environment(card_directory: Path) -> dict[str, str]:
    """Return the environment of a program that uses a card."""
    return {**os.environ, "NITRO_CARD_DIR": str(card_directory)}
