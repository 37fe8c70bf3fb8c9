"""The architecture as a test: which package may import which, and how long a function may be."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("srd", "devmem", "nitro_emu", "netns")

# What each package may import of this project's own code, besides itself. The longest matching prefix decides.
# Imports go down; siblings do not import each other. Only srd.sim imports the core and the virtual fabric.
MAY_IMPORT = {
    "srd.proto": set(),
    "srd.secure": {"srd.proto"},
    "srd.io": {"srd.proto", "srd.secure", "devmem"},
    "srd": {"srd", "srd.proto", "srd.secure", "srd.io", "devmem", "netns.units"},
    "devmem": set(),
    "nitro_emu": {"srd", "srd.proto", "srd.secure", "srd.io", "devmem", "netns.units"},
    "netns": {"netns.units"},
    "netns.units": set(),
    "srd.sim": {"srd", "srd.proto", "netns"},
}

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
        "nitro_emu.config",
        "nitro_emu.cli.verify",
    ),
    "pyroute2": "netns",
    "uvloop": ("srd", "nitro_emu.daemon"),
    "prometheus_client": "nitro_emu.metrics",
    "matplotlib": "srd.qlog.plot",
    "jinja2": "scripts",
}

SOURCES = sorted(chain.from_iterable((ROOT / package).rglob("*.py") for package in PACKAGES))
ALL_SOURCES = sorted(chain(SOURCES, (ROOT / "scripts").rglob("*.py"), (ROOT / "tests").rglob("*.py")))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    return max((name for name in MAY_IMPORT if module == name or module.startswith(name + ".")), key=len)


def imports_of(path: Path) -> set[str]:
    """Modules that `path` imports, absolute, at any position in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write it out"
            found.add(node.module or "")
    return found


def submodules_of(path: Path) -> set[str]:
    """The same, with each imported name as if it was a module, which it is in `from package import module`."""
    tree = ast.walk(ast.parse(path.read_text()))
    return {f"{node.module}.{alias.name}" for node in tree if isinstance(node, ast.ImportFrom) for alias in node.names}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_go_down(path: Path) -> None:
    package = package_of(module_of(path))
    for imported in imports_of(path):
        assert imported.split(".")[0] not in {"scripts", "tests"}, f"{module_of(path)} imports {imported}"
        if imported.split(".")[0] in PACKAGES:
            target = package_of(imported)
            assert target == package or target in MAY_IMPORT[package], f"{module_of(path)} imports {imported}"


def test_no_module_depends_on_itself() -> None:
    """Neither indirectly nor for types only: each module can be read after its imports."""
    graph = {module_of(path): (imports_of(path) | submodules_of(path)) - {module_of(path)} for path in SOURCES}
    try:
        TopologicalSorter({module: imported & graph.keys() for module, imported in graph.items()}).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("path", [p for p in SOURCES if "proto" in p.relative_to(ROOT).parts], ids=name_of)
def test_core_is_sans_io(path: Path) -> None:
    foreign = {name for name in imports_of(path) if not name.startswith("srd.proto")} - PROTO_MAY_IMPORT
    assert not foreign, f"{module_of(path)} imports {sorted(foreign)}"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_libraries_stay_in_their_place(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports_of(path)}
    for library, package in ONLY_IN.items():
        assert library not in roots or module_of(path).startswith(package), f"{library} in {module_of(path)}"


@pytest.mark.parametrize("path", ALL_SOURCES, ids=name_of)
def test_functions_are_short(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length < 60, f"{name_of(path)}: {node.name} is {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_every_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{name_of(path)} has no docstring"
