"""The environment of a measurement: machine, kernel, versions. Figures cannot be interpreted without it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Final

from srd.build import BUILD

_ROOT: Final = Path(__file__).resolve().parent.parent.parent


def environment() -> dict[str, str | int]:
    """Return a description of this machine, for report.json."""
    return {
        "machine": _processor(),
        "cpu_count": os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "system": _system(),
        "python": platform.python_version(),
        "iproute2": _first_line("ip", "-V"),
        "open-srd": f"{_version('open-srd')} {BUILD}",
        "revision": _first_line("git", "-C", str(_ROOT), "describe", "--always", "--dirty"),
        "numpy": _version("numpy"),
        "uvloop": _version("uvloop"),
    }


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _first_line(*command: str) -> str:
    """Return the first line that `command` prints, or "unknown", as a missing version must not fail a report."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return (done.stdout.strip().splitlines() or ["unknown"])[0]
