"""The architecture as a test: which package may import which, and how long a function may be."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Collection
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest

from devmem.errors import DevmemError
from netns.errors import LabError
from nitro_emu.errors import NitroError
from srd.errors import SrdError

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("srd", "devmem", "nitro_emu", "netns")

PAGE = (ROOT / "docs/architecture.md").read_text()


def block_of(name: str) -> list[str]:
    """The lines of a fenced block of docs/architecture.md."""
    text: str
    (text,) = re.findall(rf"^```{name}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return text.splitlines()


def arrows(block: str) -> dict[str, set[str]]:
    """What each package may import of this project's own code, besides itself. The longest matching prefix decides."""
    lines = [line.split("->") for line in block_of(block)]
    return {name.strip(): set(re.findall(r"[a-z_.]+", targets)) for name, targets in lines}


MAY_IMPORT = arrows("imports")
IN_CORE = arrows("core")
"""The same between the folders of the core, the lowest one first."""

# The core is sans-I/O: no clock, no random numbers of its own, no sockets, no blocking, no event loop.
PROTO_MAY_IMPORT = {
    "__future__", "abc", "collections", "collections.abc", "dataclasses", "enum", "functools", "hashlib", "hmac",
    "heapq", "itertools", "math", "mypy_extensions", "numpy", "numpy.typing", "random", "struct", "typing",
}  # fmt: skip

# Third-party libraries that only these packages import.
ONLY_IN: dict[str, str | tuple[str, ...]] = {
    "cbor2": "nitro_emu.trust",
    "cryptography": (
        "srd.secure",
        "nitro_emu.trust",
        "nitro_emu.chip",
        "nitro_emu.vpc",
        "nitro_emu.device",
        "nitro_emu.card",
        "nitro_emu.ebs",
        "nitro_emu.peers.mapping",
        "nitro_emu.cli.verify",
        "nitro_emu.cli.volume_keys",
    ),
    "crc32c": "nitro_emu.ebs.server",
    "pyroute2": ("netns", "srd.tunnel.interface"),
    "uvloop": "netns.base.event_loop",
    "prometheus_client": (
        "netns.base.metrics",
        "nitro_emu.card.metrics",
        "nitro_emu.ebs.metrics",
        "srd.metrics.exposition",
        "netns.observe.lab_metrics",
    ),
    "matplotlib": (
        "srd.qlog.plot",
        "srd.compare.plots",
        "srd.sim.experiments.plots",
        "srd.sim.roce.picture",
        "netns.chart.queue_plot",
    ),
    "jinja2": ("srd.compare.page", "srd.sim.experiments.page"),
    "scapy": "srd.contrib.scapy",
    "distributed": ("srd.dask", "srd.sim.experiments.sweep"),
    "dask": "srd.dask",
    "torch": ("srd.torch", "srd.examples.tensor_exchange"),
}

# Public classes whose name stands more than once in a top-level package, and why.
SHARED_NAMES = {
    "nitro_emu": {
        "Context": "libibverbs' name (ibv_context), and pyverbs'",
        "DeviceAttr": "EFA's name of a feature (EFA_ADMIN_DEVICE_ATTR), and pyverbs'",
    },
    "srd": dict.fromkeys(
        ("MessageAborted", "MessageReceived", "PeerEnded", "PeerOpened", "WriteReceived"),
        "an event of the core, and the record of a trace that is named for it",
    ),
}

ERROR_ROOTS = {"srd": SrdError, "devmem": DevmemError, "nitro_emu": NitroError, "netns": LabError}

SOURCES = sorted(chain.from_iterable((ROOT / package).rglob("*.py") for package in PACKAGES))
ALL_SOURCES = sorted(chain(SOURCES, *((ROOT / folder).rglob("*.py") for folder in ("examples", "scripts", "tests"))))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str, *, table: Collection[str] = tuple(MAY_IMPORT)) -> str:
    return max((name for name in table if module == name or module.startswith(name + ".")), key=len)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path) -> set[str]:
    """Modules that `path` imports, absolute, at any position in the file."""
    found: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write it out"
            found.update(module_named(node.module or "", alias.name) for alias in node.names)
    return found


def module_named(package: str, name: str) -> str:
    """What `from package import name` imports: a module of the package, or the package for something in it."""
    place = ROOT.joinpath(*package.split("."), name)
    return f"{package}.{name}" if place.is_dir() or place.with_suffix(".py").is_file() else package


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_go_down() -> None:
    wrong = [
        f"{module_of(path)} imports {imported}"
        for path in SOURCES
        for imported in imports_of(path)
        if not may_import(module_of(path), imported)
    ]
    assert not wrong


def may_import(module: str, imported: str) -> bool:
    root = imported.split(".", maxsplit=1)[0]
    if root not in PACKAGES:
        return root not in {"scripts", "tests"}
    package, target = package_of(module), package_of(imported)
    return target == package or target in MAY_IMPORT[package]


def test_every_arrow_is_used() -> None:
    used = {
        (package_of(module_of(path)), package_of(imported))
        for path in SOURCES
        for imported in imports_of(path)
        if imported.split(".", maxsplit=1)[0] in PACKAGES
    }
    drawn = {(package, target) for package, targets in MAY_IMPORT.items() for target in targets}
    assert not drawn - used


def arrows_in_core() -> dict[tuple[str, str], str]:
    """Each arrow between folders of the core that there is, with a module that draws it."""
    core = [path for path in SOURCES if module_of(path).startswith("srd.proto")]
    arrows_of = (
        (package_of(module_of(path), table=IN_CORE), package_of(imported, table=IN_CORE), module_of(path))
        for path in core
        for imported in imports_of(path)
        if imported.startswith("srd.proto")
    )
    return {(package, target): module for package, target, module in arrows_of if package != target}


def test_folders_of_the_core_are_layers() -> None:
    """Each imports what the table says, and that is above it, so there is no cycle."""
    assert {package_of(module_of(path), table=IN_CORE) for path in SOURCES if "proto" in path.parts} == IN_CORE.keys()
    order = list(IN_CORE)
    for package, targets in IN_CORE.items():
        assert targets <= set(order[: order.index(package)]), package
    found = arrows_in_core()
    drawn = {(package, target) for package, targets in IN_CORE.items() for target in targets}
    assert not {arrow: module for arrow, module in found.items() if arrow not in drawn}
    assert not drawn - found.keys()


def test_the_list_of_folders_is_the_trees() -> None:
    listed = [line.split(maxsplit=1)[0].rstrip("/") for line in block_of("folders")]
    folders = {str(path.parent.relative_to(ROOT)) for path in SOURCES}
    assert set(listed) - {name for name in listed if name.startswith("scripts")} == folders
    assert all((ROOT / name).is_dir() for name in listed)
    assert len(listed) == len(set(listed))


def test_no_module_depends_on_itself() -> None:
    """Neither indirectly nor for types only: each module can be read after its imports."""
    graph = {module_of(path): imports_of(path) - {module_of(path)} for path in SOURCES}
    try:
        TopologicalSorter({module: imported & graph.keys() for module, imported in graph.items()}).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_core_is_sans_io() -> None:
    foreign = [
        f"{module_of(path)} imports {name}"
        for path in SOURCES
        if "proto" in path.relative_to(ROOT).parts
        for name in imports_of(path) - PROTO_MAY_IMPORT
        if not name.startswith("srd.proto")
    ]
    assert not foreign


def test_libraries_stay_in_their_place() -> None:
    strayed = [
        f"{library} in {module}"
        for path in SOURCES
        for library in {name.split(".")[0] for name in imports_of(path)} & ONLY_IN.keys()
        if not (module := module_of(path)).startswith(ONLY_IN[library])
    ]
    assert not strayed


def test_functions_are_short() -> None:
    long = [
        f"{name_of(path)}: {node.name} is {length} lines"
        for path in ALL_SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) >= 60
    ]
    assert not long


def test_errors_have_one_root_a_package() -> None:
    strangers = [
        f"{module}.{name}"
        for module in map(module_of, SOURCES)
        if module.endswith(".errors")
        for name, kind in vars(import_module(module)).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
        if not issubclass(kind, ERROR_ROOTS[module.split(".", maxsplit=1)[0]])
    ]
    assert not strangers


def names_that_stand_twice() -> dict[str, set[str]]:
    """Public classes that several modules of a top-level package define, by package."""
    places: dict[str, Counter[str]] = defaultdict(Counter)
    for path in ALL_SOURCES:
        classes = {node.name for node in tree_of(path).body if isinstance(node, ast.ClassDef)}
        places[path.relative_to(ROOT).parts[0]].update(name for name in classes if not name.startswith("_"))
    return {package: {name for name, count in found.items() if count > 1} for package, found in places.items()}


def test_one_name_is_one_class() -> None:
    """In a top-level package; each exception has a reason, and none is left over."""
    found = names_that_stand_twice()
    del found["tests"]
    assert found == {package: set(SHARED_NAMES.get(package, ())) for package in found}


OUTLIVE = {"netns/pytest.py", "netns/backends/uml.py"}
"""A test's own command in its lab, which the lab's record finds; and User-Mode Linux, whose guardian has a lifeline."""


def test_processes_end_with_who_starts_them() -> None:
    """Of programs in scripts/ and netns/: by netns.programs.ending_with_us, or even SIGKILL leaves them behind."""
    left = [
        f"{name_of(path)}:{node.lineno}"
        for folder in ("scripts", "netns")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"subprocess.Popen", "Popen"}
        if not ast.unparse(node.args[0]).startswith("ending_with_us(") and name_of(path) not in OUTLIVE
    ]
    assert not left


def test_every_module_has_a_docstring() -> None:
    without = [name_of(path) for path in SOURCES if not ast.get_docstring(tree_of(path))]
    assert not without
