"""Compiles with mypyc the protocol core and the datapath, what lies above them, the card, and the simulation.

Packet encryption has a part in C besides (`NATIVE`). The compilation takes place when a wheel is built. It changes only
the speed.

Rules.
1. An editable install and a checkout run the sources; only a wheel contains compiled modules.
2. Without a C compiler or Python's headers the wheel is pure Python; its name and `srd --version` show it.
3. A compiled class supports no weak references, subclasses or mocks. A class for which users need them stays an
   ordinary class (`native_class=False`), or its module is not compiled.
4. Not compiled: protocols (`typing.Protocol`) that ordinary classes implement by inheritance, and modules that pass the
   kernel the address of an object that only a local variable refers to, as mypyc frees the object after its last use.
5. What was compiled last is kept in build/native under a digest of all that mypyc reads (`digest`), and is taken again
   while that is the same. A docstring of a module that is not compiled changes nothing.
6. A C file a module, at -O1, one compiler process per CPU: 79 s for 227 with one file at -O2, on two slow cores, on
   2026-11-27; `srd perf` over loopback was no slower then.
"""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

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
    "srd/send_memory.py",
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
    "nitro_emu/efa/abi/io.py",
    "nitro_emu/counters.py",
    *(
        f"nitro_emu/efa/card/{name}.py"
        for name in (
            "completion_queue",
            "doorbells",
            "function",
            "landing",
            "memory_region",
            "objects",
            "poller",
            "queue_pair",
            "recv_queue",
            "requester",
            "responder",
            "send_queue",
            "tables",
            "vf",
            "wqe_runs",
        )
    ),
    *(f"nitro_emu/peers/{name}.py" for name in ("endpoint", "incoming", "outgoing")),
    "netns/backends/virtual/*.py",
    "netns/backends/virtual/lossless/*.py",
    "netns/base/token_bucket.py",
    "netns/netem/loss_models.py",
    "netns/netem/queue.py",
    "srd/sim/*.py",
    "srd/sim/models/*.py",
)
NATIVE = Extension("srd.secure._aead", ["srd/secure/_aead.c"], extra_compile_args=["-O2"], optional=True)
"""Written in C; see srd/secure/packets.py."""
NOT_COMPILED = {"__init__.py", "flows.py", "memory.py", "security.py", "trace.py", "syscalls.py", "steering.py"}
"""flows.py: its records go to workers of a cluster, and a frozen dataclass that mypyc has compiled is not unpickled."""
KEPT = Path("build", "native")
"""A folder for the digest of what is compiled, with the compiled modules in the places of the packages."""
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
WITHOUT_COMPILER = (
    "no C compiler, or no Python.h: installed without compiling, everything takes 1.2 to 2 times as long; "
    "install both (Debian: gcc, python3-dev), and install again"
)
PROGRESS = 20
"""Lines that show how far the compiler is: scripts/watched.py reads them."""


def compiled() -> list[Path]:
    """Return the modules to compile."""
    return [path for pattern in COMPILED for path in sorted(Path().glob(pattern)) if path.name not in NOT_COMPILED]


def digest() -> str:
    """Return a digest of all that decides what mypyc writes.

    A compiled module counts with each byte, as it has its line numbers. What it imports, and so on, counts without
    comments and docstrings: mypyc takes types and the values of constants from there.
    """
    sources = set(compiled())
    found = hashlib.sha256(SUFFIX.encode())
    for path in (Path("setup.py"), Path("constraints.txt"), *map(Path, NATIVE.sources), *sorted(sources)):
        found.update(os.fsencode(path) + hashlib.sha256(path.read_bytes()).digest())
    for path in sorted(_imported(sources) - sources):
        found.update(os.fsencode(path) + hashlib.sha256(_meaning(path).encode()).digest())
    return found.hexdigest()[:16]


def _imported(sources: set[Path]) -> set[Path]:
    """Return these modules of the project and all that they import, directly or not."""
    found: set[Path] = set()
    todo = set(sources)
    while todo:
        found |= todo
        todo = {path for source in todo for path in _imports(source)} - found
    return found


def _imports(source: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(source.read_bytes())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{name}" for name in names)]
        for name in names:
            path = Path(*name.split("."))
            packages = [parent / "__init__.py" for parent in (path, *path.parents)]
            yield from (each for each in (path.with_suffix(".py"), *packages[:-1]) if each.is_file())


def _meaning(source: Path) -> str:
    """Return a module without comments, docstrings and line numbers."""
    tree = ast.parse(source.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [  # type: ignore[attr-defined]
                each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ]
    return ast.dump(tree)


def compiler_works() -> bool:
    """Whether there is a C compiler, and Python's headers."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "probe.c")
        source.write_text("#include <Python.h>\n")
        command = [*compiler.split(), "-I", sysconfig.get_path("include"), "-c", str(source), "-o", f"{source}.o"]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False


def say(text: str) -> None:
    """Print a line of progress; pip shows it with -v only."""
    print(f"setup: {text}", file=sys.stderr, flush=True)


def tell_terminal(text: str) -> None:
    """Print a line to who sits at the terminal, if there is one: pip keeps what a build prints to itself."""
    with suppress(OSError), open("/dev/tty", "w") as terminal:  # noqa: PTH123 - a device
        print(text, file=terminal)


def extensions() -> list[Extension]:
    """Return the extensions to compile, or those of build/native. Raises SystemExit when mypy reports type errors."""
    if not compiler_works():
        say(WITHOUT_COMPILER)
        tell_terminal(f"open-srd: {WITHOUT_COMPILER}")
        return []
    kept = KEPT / digest()
    if kept.is_dir():
        names = [path.relative_to(kept) for path in kept.rglob(f"*{SUFFIX}")]
        return [Extension(".".join(name.parts).removesuffix(SUFFIX), sources=[]) for name in names]
    from mypyc.build import mypycify  # noqa: PLC0415 - not needed to run setup.py for anything else

    paths = compiled()
    say(f"compiling to C: {len(paths)} modules")
    options = ["--config-file=pyproject.toml", *map(str, paths)]
    found = mypycify(options, opt_level="1", debug_level="0", multi_file=True)
    for extension in found:
        # mypyc indents most lines by hundreds of spaces; for this warning gcc reads them again, which doubles its time.
        extension.extra_compile_args = [*extension.extra_compile_args, "-Wno-misleading-indentation"]
    return [*found, NATIVE]


class BuildNative(build_ext):
    """Compiles with a process per CPU, and keeps the result; or takes what is kept."""

    def build_extensions(self) -> None:
        """Build all extensions."""
        kept = KEPT / digest()
        if kept.is_dir():
            shutil.copytree(kept, self.build_lib, dirs_exist_ok=True)
            return
        total = len({source for extension in self.extensions for source in extension.sources})
        self.parallel = os.cpu_count()
        with ThreadPoolExecutor(self.parallel) as pool:
            self._compile_in(pool, total=total)
            super().build_extensions()
        shutil.rmtree(KEPT, ignore_errors=True)
        for path in Path(self.build_lib).rglob(f"*{SUFFIX}"):
            target = kept / path.relative_to(self.build_lib)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)

    def _compile_in(self, pool: ThreadPoolExecutor, *, total: int) -> None:
        """Have the compiler object compile the files of an extension in a pool's threads."""
        compile_one = self.compiler.compile
        done: list[str] = []

        def one(source: str, options: dict[str, Any]) -> list[str]:
            objects: list[str] = compile_one([source], **options)
            done.append(source)
            if len(done) * PROGRESS // total > (len(done) - 1) * PROGRESS // total:
                say(f"compiling C: {len(done)} of {total} files")
            if len(done) == total:
                say("linking")
            return objects

        def all_of(sources: Sequence[str], **options: Any) -> list[str]:
            return list(chain.from_iterable(pool.map(lambda source: one(source, options), sources)))

        self.compiler.compile = all_of


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


if __name__ == "__main__":  # as of a build, too; tests import `digest`
    setup(
        long_description=description(),
        long_description_content_type="text/markdown",
        ext_modules=extensions() if "bdist_wheel" in sys.argv else [],
        cmdclass={"build_ext": BuildNative},
    )
