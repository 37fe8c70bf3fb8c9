"""Cards as processes: with devices, or as `fake_card` makes them."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.srd.cli.processes import Process

FAKE_CARD = Path(__file__).with_name("fake_card.py")

_addresses = itertools.count()


def card_file(directory: Path, *, more: str = "", run_dir: Path | None = None, vfs: Sequence[str] = ()) -> Path:
    """Write a card's settings; its run directory is `run` beside them."""
    path = directory / "card.yaml"
    listed = "".join(f"  - {{{vf}}}\n" for vf in vfs or ("name: efa_0, address: 127.0.0.1",))
    run_dir, audit_log = run_dir or directory / "run", directory / "audit.log"
    path.write_text(f"name: card\nrun_dir: {run_dir}\naudit_log: {audit_log}\nvfs:\n{listed}{more}")
    return path


def fake_card(config: Path, *, behaviour: str = "well", options: Sequence[str] = ()) -> Process:
    return Process([sys.executable, str(FAKE_CARD), str(config), behaviour, *options])


def nitro_card(*arguments: str) -> Process:
    return Process([sys.executable, "-m", "nitro_emu.cli", *arguments])


def efa_tool(name: str, *arguments: str) -> Process:
    """`efa-pingpong` or `efa-bw`."""
    return Process([sys.executable, "-c", f"from nitro_emu.command import efa_{name}; efa_{name}()", *arguments])


def loopback_vf(name: str = "efa_0", *, more: str = "") -> str:
    """Return a virtual function at such an address, as a line of YAML without braces."""
    return f"name: {name}, address: {loopback_address()}{more and ', ' + more}"


def loopback_address() -> str:
    """Return an address of this machine that no other test uses, so that each card can have the usual port."""
    count = next(_addresses)
    return f"127.{1 + count % 250}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
