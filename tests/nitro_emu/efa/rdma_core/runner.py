"""Runs rdma-core's own tests of SRD and of efadv on a card, unmodified, in a process of their own.

    python runner.py FOLDER [--server-device NAME] [-k PATTERN]

FOLDER has rdma-core's tests as files; `card_directory()` has the devices. The last line of stdout is a JSON object:
{"run", "failures", "errors", "skipped"}, each of the last three a list of names; the exit status is 0 if all are empty.

rdma-core's tests expect their folder as the package `tests` whose command line has been parsed, and a program `rdma`
that lists network devices. Both players open one device; with --server-device, the second opens another one, and
address handles are the other player's: then the two may be on different cards.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import itertools
import json
import os
import shutil
import sys
import tempfile
import types
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
MODULES = ("test_efa_srd", "test_efadv")


def unpack(folder: Path, *, into: Path) -> Path:
    """Return a folder with all tests unpacked: Debian compresses the larger ones."""
    for path in folder.iterdir():
        if path.name.endswith(".py.gz"):
            (into / path.name.removesuffix(".gz")).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.suffix == ".py":
            shutil.copy(path, into)
    return into


def prepare(folder: Path, *, programs: Path) -> None:
    """Make the tests importable, as they expect it."""
    rdma = programs / "rdma"
    rdma.write_text("#!/bin/sh\necho '[]'\n")
    rdma.chmod(0o755)
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    sys.path[:0] = [str(ROOT / "nitro_emu/efa/pyverbs"), str(ROOT), str(folder)]
    package = types.ModuleType("tests")
    package.__path__ = [str(folder)]
    sys.modules["tests"] = package
    sys.argv[1:] = []
    importlib.import_module("args_parser").parser.parse_args()
    importlib.import_module("tests.utils")


def use_two_devices(server_device: str) -> None:
    """Let every second player open `server_device`, and let address handles be those of the other player."""
    addr = importlib.import_module("pyverbs.addr")
    resources: Any = importlib.import_module("tests.efa_base").SRDResources
    utils: Any = importlib.import_module("tests.utils")
    original = resources.__init__
    turns = itertools.cycle((False, True))
    players: list[Any] = []

    def initialize(self: Any, dev_name: str, *arguments: Any, **options: Any) -> None:
        is_server = next(turns)
        players[:] = [*players[-1:], self] if is_server else [self]
        original(self, server_device if is_server else dev_name, *arguments, **options)

    def get_global_ah(player: Any, gid_index: int, port: int) -> Any:
        other = next(each for each in players if each is not player)
        route = addr.GlobalRoute(dgid=other.ctx.query_gid(port, gid_index), sgid_index=gid_index)
        return addr.AH(player.pd, attr=addr.AHAttr(port_num=port, is_global=1, gr=route))

    resources.__init__ = initialize
    utils.get_global_ah = get_global_ah


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--server-device")
    parser.add_argument("-k", dest="pattern")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        programs, tests = Path(directory, "bin"), Path(directory, "tests")
        programs.mkdir()
        tests.mkdir()
        prepare(unpack(options.folder, into=tests), programs=programs)
        if options.server_device is not None:
            use_two_devices(options.server_device)
        loader = unittest.TestLoader()
        loader.testNamePatterns = [f"*{options.pattern}*"] if options.pattern else None
        suite = loader.loadTestsFromNames([f"tests.{module}" for module in MODULES])
        result = unittest.TextTestRunner(verbosity=2).run(suite)
    found = {
        "run": result.testsRun,
        "failures": [test.id() for test, _ in result.failures],
        "errors": [test.id() for test, _ in result.errors],
        "skipped": [test.id() for test, _ in result.skipped],
    }
    print(json.dumps(found))
    return 0 if result.testsRun and not any(found[kind] for kind in ("failures", "errors", "skipped")) else 1


if __name__ == "__main__":
    raise SystemExit(main())
