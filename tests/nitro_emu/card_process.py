"""A card as a process of its own, for tests: started, waited for, ended by SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.nitro_emu.processes import card_file
from tests.srd.cli.processes import Process

_addresses = count(1)


def loopback_vf(name: str = "efa_0", *, more: str = "") -> str:
    """Return a virtual function on an address of 127.0.0.0/8 that no other test uses at the same time."""
    pid = os.getpid()
    address = f"127.{1 + (pid >> 8) % 254}.{pid % 256}.{next(_addresses) % 254 + 1}"
    return f"name: {name}, address: {address}{more and ', ' + more}"


@contextmanager
def running_card(directory: Path, *, vfs: Sequence[str], more: str = "", prefix: Sequence[str] = ()) -> Iterator[Path]:
    """Run a card until the end of the block; gives the directory of its sockets. Fails if it does not exit with 0.

    `vfs`: the virtual functions, each a line of YAML without braces; `more`: other settings; `prefix`: the command
    that runs it, such as in a network namespace.
    """
    directory.mkdir(exist_ok=True)
    run_dir = directory / "run"
    config = card_file(directory, vfs=vfs, more=more)
    with Process([*prefix, sys.executable, "-m", "nitro_emu.cli", "run", str(config), "--json-lines"]) as process:
        process.event("ready")
        try:
            yield run_dir
        finally:
            process.kill(signal.SIGTERM)
            status = process.wait()
            log = "\n".join(process.stderr.all())
        assert status == 0, log
        assert "internal error" not in log, log


def devices_of(directory: Path, *, cards: Mapping[str, Path]) -> Path:
    """Make a directory with devices of several cards: each name in it, and the socket that it stands for."""
    directory.mkdir()
    for name, socket in cards.items():
        (directory / f"{name}.sock").symlink_to(socket)
    return directory


def environment(card_directory: Path) -> dict[str, str]:
    """Return the environment of a program that uses a card."""
    return {**os.environ, "NITRO_CARD_DIR": str(card_directory)}
