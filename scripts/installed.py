#!/usr/bin/env python3
"""Checks that the packages installed in .venv are those of the checkout, as the programs in scripts/ use them.

`make setup` installs the packages, compiled if there is a C compiler (see setup.py), and stores a digest of their
sources. The programs call `start` first; `scripts/installed.py` prints the digest. With PYTHONPATH set to the checkout
they run its sources instead, as the tests do.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python"
STAMP = ROOT / ".venv" / ".installed"
PACKAGES = ("srd", "devmem", "nitro_emu", "netns")
OTHERS = ("pyproject.toml", "constraints.txt", "setup.py", "scripts/setup")


def digest() -> str:
    """Return a digest of everything that is installed, and of its path, as a .venv that was moved does not work."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = hashlib.sha256(os.fsencode(ROOT))
    for path in [*sorted(paths), *(ROOT / name for name in OTHERS)]:
        found.update(os.fsencode(path.relative_to(ROOT)) + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def start(program: str) -> None:
    """Continue in .venv with the installed packages. Raises SystemExit if they are not those of the checkout.

    The caller has inserted the checkout at the beginning of `sys.path`, to find this module.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing to clean up yet: no traceback while modules load
    if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        if not PYTHON.exists():
            sys.exit(f"{program}: {PYTHON} is not there; run make setup")
        os.execv(PYTHON, [str(PYTHON), *sys.argv])  # noqa: S606 - no shell is wanted
    del sys.path[0]  # the checkout, which .venv has on its path behind what is installed
    with suppress(ValueError):
        sys.path.remove(str(ROOT / "scripts"))  # its modules are named from the root
    os.environ["PYTHONSAFEPATH"] = "1"  # for child processes: no modules from their working directory
    if str(ROOT) in map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))):
        return
    if not STAMP.exists() or STAMP.read_text() != digest():
        sys.exit(f"{program}: {STAMP.parent} holds other sources than these; run make setup (or set PYTHONPATH={ROOT})")


if __name__ == "__main__":
    print(digest())
