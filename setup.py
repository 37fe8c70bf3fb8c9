"""Compiles with mypyc the protocol core and the datapath, what lies above them, the card, and the simulation.

The compilation takes place when a wheel is built. It changes only the speed.

Rules.
1. An editable install and a checkout run the sources; only a wheel contains compiled modules.
2. Without a C compiler or Python's headers the wheel is pure Python; its name and `srd --version` show it.
3. A compiled class supports no weak references, subclasses or mocks. A class for which users need them stays an
   ordinary class (`native_class=False`), or its module is not compiled.
4. Not compiled: protocols (`typing.Protocol`) that ordinary classes implement by inheritance, and modules that pass the
   kernel the address of an object that only a local variable refers to, as mypyc frees the object after its last use.
"""

import re
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

COMPILED = (
    "srd/proto/**/*.py",
    "srd/io/*.py",
    "srd/secure/*.py",
    "srd/endpoint.py",
    "srd/engine.py",
    "srd/inbox.py",
    "srd/message.py",
    "srd/peer.py",
    "srd/rx_queues.py",
    "srd/notify.py",
    *(
        f"srd/tunnel/{name}.py"
        for name in (
            "ack_filter",
            "allowed",
            "fair_queue",
            "frames",
            "gateway",
            "member",
            "order",
            "packets",
            "routing",
            "send_memory",
            "tun",
            "vnet",
        )
    ),
    "devmem/pool.py",
    "nitro_emu/abi/io.py",
    "nitro_emu/counters.py",
    *(
        f"nitro_emu/device/{name}.py"
        for name in (
            "completion_queue",
            "doorbells",
            "efa_function",
            "landing",
            "memory_region",
            "objects",
            "poller",
            "queue_pair",
            "recv_queue",
            "remote",
            "requester",
            "responder",
            "send_queue",
            "sources",
            "tables",
            "vf_endpoint",
            "wqe_runs",
        )
    ),
    "netns/backends/virtual/*.py",
    "netns/netem/loss_models.py",
    "netns/netem/queue.py",
    "srd/sim/*.py",
)
NOT_COMPILED = {"__init__.py", "memory.py", "security.py", "trace.py", "syscalls.py", "steering.py"}


def extensions() -> list[Extension]:
    """Return the extensions to compile; raises SystemExit when mypy reports type errors."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        print("no C compiler or no Python.h: not compiled, and slower", file=sys.stderr)
        return []
    from mypyc.build import mypycify  # noqa: PLC0415 - not needed to run setup.py for anything else

    paths = [path for pattern in COMPILED for path in sorted(Path().glob(pattern)) if path.name not in NOT_COMPILED]
    found = mypycify(["--config-file=pyproject.toml", *map(str, paths)], opt_level="2", debug_level="0")
    for extension in found:
        # mypyc indents most lines by hundreds of spaces; for this warning gcc reads them again, which doubles its time.
        extension.extra_compile_args = [*extension.extra_compile_args, "-Wno-misleading-indentation"]
    return found


def description() -> str:
    """Return README.md for an index of packages, where relative links lead nowhere: each as the file's name, no images.

    The files themselves are in share/doc/open-srd of an environment.
    """
    text = re.sub(
        r"^!\[[^]]*\]\((?!\w+://)[^)]*\)\n+", "", Path("README.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    return re.sub(r"\[([^]]*)\]\((?!\w+://)([^)#]+)[^)]*\)", _named, text)


def _named(link: re.Match[str]) -> str:
    return link[1] if link[1] == link[2] else f"{link[1]} (`{link[2]}`)"


setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    ext_modules=extensions() if "bdist_wheel" in sys.argv else [],
)
