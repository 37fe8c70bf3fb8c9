"""The commands of the card, or which extra they lack: the transport is installed without what command lines need."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from netns.base.standard_streams import open_closed

EXTRA: Final = ("cbor2", "click", "prometheus_client", "pydantic", "rich", "uvloop", "yaml")
"""What the extra `card` brings."""


def nitro_card() -> None:
    """Run `nitro-card`."""
    _run("nitro-card", "nitro_emu.cli")


def nitro_chip() -> None:
    """Run `nitro-chip`."""
    _run("nitro-chip", "nitro_emu.cli.chip")


def nitro_verify() -> None:
    """Run `nitro-verify`."""
    _run("nitro-verify", "nitro_emu.cli.verify")


def nitro_vpc() -> None:
    """Run `nitro-vpc`."""
    _run("nitro-vpc", "nitro_emu.cli.vpc")


def efa_bw() -> None:
    """Run `efa-bw`."""
    _run("efa-bw", "nitro_emu.cli.perf", main="main_bw")


def efa_pingpong() -> None:
    """Run `efa-pingpong`."""
    _run("efa-pingpong", "nitro_emu.cli.perf", main="main_pingpong")


def _run(name: str, module: str, *, main: str = "main") -> None:
    open_closed()
    try:
        getattr(import_module(module), main)()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        sys.exit(f"{name}: needs {error.name}; install it: pip install 'open-srd[card]'")
