"""Compiles the protocol core, the datapath and what every message passes through to the application, with mypyc.

It happens when a wheel is built: the same sources, up to twice as fast.

Rules.
1. The sources are the program; compiled modules are what a build makes of them. An editable install and a checkout run
   the sources.
2. Without a C compiler or Python's headers the wheel is pure Python, and says so by its name and by `srd --version`.
3. A compiled class takes no weak references, subclasses or mocks. Where users want them it stays an ordinary one
   (`native_class=False`), or is not compiled.
4. Not compiled: protocols (`typing.Protocol`) that ordinary classes implement by inheritance, and modules that hand the
   kernel the address of something that only a local variable holds: mypyc lets go of it after its last use.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

COMPILED = (
    "srd/proto/**/*.py",
    "srd/io/*.py",
    "srd/endpoint.py",
    "srd/message.py",
    "srd/peer.py",
    "srd/rx_queues.py",
    "srd/notify.py",
    "devmem/pool.py",
)
NOT_COMPILED = {"__init__.py", "memory.py", "trace.py", "syscalls.py", "steering.py"}


def extensions() -> list[Extension]:
    """Return what is to be compiled; raises SystemExit when mypy finds the types wrong."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        print("no C compiler or no Python.h: not compiled, and slower", file=sys.stderr)
        return []
    from mypyc.build import mypycify  # noqa: PLC0415 - not needed to run setup.py for anything else

    paths = [path for pattern in COMPILED for path in sorted(Path().glob(pattern)) if path.name not in NOT_COMPILED]
    return mypycify(["--config-file=pyproject.toml", *map(str, paths)], opt_level="2", debug_level="0")


setup(ext_modules=extensions() if "bdist_wheel" in sys.argv else [])
