"""Which tests a changed file asks for, and how near to it each is.

Rules.
1. Tests mirror the tree: `a/b/c.py` asks first for tests/a/b/test_c.py and test_c_*.py, then for the rest of tests/a/b,
   or of the next folder above it that has tests.
2. A file that is no Python, of data for one, asks first for the tests that name it.
3. A test asks for itself. What tests share asks for those that import it, a conftest.py for those of its folder.
4. The core and what lies directly above it ask for the core's tests, too, after all others.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

ALWAYS: Final = "tests/test_architecture.py"  # of all files, in three seconds
CORE: Final = "tests/srd/proto"
NEAR, FOLDER, FAR = range(3)


def changed_files(root: Path, base: str | None) -> list[str]:
    """Return what differs from where this branch left `base` (the main branch), committed or not, deleted or new.

    Raises CalledProcessError with git's reason in `stderr`.
    """
    fork = _git(root, "merge-base", "HEAD", base or _main_branch(root)).strip()
    differing = _git(root, "diff", "--name-only", "--no-renames", "-z", fork, "--")
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return sorted({path for path in (differing + new).split("\0") if path})


def _main_branch(root: Path) -> str:
    known = _git(root, "for-each-ref", "--format=%(refname)", "refs/remotes/origin/main", "refs/heads/main").split()
    return "refs/remotes/origin/main" if "refs/remotes/origin/main" in known else known[0] if known else "HEAD"


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, text=True).stdout


def texts_of_tests(root: Path) -> dict[str, str]:
    """Return all modules below tests/: path from the root -> text."""
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted((root / "tests").rglob("*.py"))}


def select(changed: Iterable[str], texts: Mapping[str, str]) -> list[str]:
    """Return the files of tests that `changed` asks for, the nearest first."""
    nearest = {ALWAYS: NEAR}
    for name in changed:
        for test, nearness in _asked_for(PurePosixPath(name), texts):
            nearest[test] = min(nearness, nearest.get(test, nearness))
    return sorted(nearest, key=lambda test: (nearest[test], test))


def _asked_for(path: PurePosixPath, texts: Mapping[str, str]) -> Iterable[tuple[str, int]]:
    if path.suffix != ".py":
        yield from ((test, NEAR) for test in _naming(path, texts))
    if path.parts[0] == "tests":
        yield from ((test, NEAR) for test in _standing_for(path, texts, seen=set()))
        return
    folder = _folder(PurePosixPath("tests") / path.parent, texts)
    own = re.compile(rf"test_{re.escape(path.stem)}(_.*)?\.py")
    for test in _below(folder, texts):
        if PurePosixPath(test).parent == folder:
            yield test, NEAR if own.fullmatch(PurePosixPath(test).name) else FOLDER
    if path.is_relative_to("srd/proto") or path.is_relative_to("srd/io") or path.match("srd/*.py"):
        yield from ((test, FAR) for test in _below(PurePosixPath(CORE), texts))


def _folder(folder: PurePosixPath, texts: Mapping[str, str]) -> PurePosixPath:
    """Return the nearest folder, upwards from `folder`, that has tests."""
    having = {PurePosixPath(name).parent for name in texts if is_test(PurePosixPath(name))}
    return next((place for place in (folder, *folder.parents) if place in having), PurePosixPath("tests"))


def _standing_for(path: PurePosixPath, texts: Mapping[str, str], *, seen: set[PurePosixPath]) -> Iterable[str]:
    """Yield the tests that show whether `path`, a file of tests/, is right: itself, or those that use it."""
    if path in seen:
        return
    seen.add(path)
    if is_test(path) and str(path) in texts:
        yield str(path)
    if path.name == "conftest.py":
        yield from _below(path.parent, texts)
    module = re.escape(".".join(path.with_suffix("").parts))
    parent = re.escape(".".join(path.parent.parts))
    uses = re.compile(rf"\b{module}\b|from {parent} import .*\b{re.escape(path.stem)}\b")
    for name, text in texts.items():
        if uses.search(text):
            yield from _standing_for(PurePosixPath(name), texts, seen=seen)


def _naming(path: PurePosixPath, texts: Mapping[str, str]) -> list[str]:
    """Return the tests that name the file; for what lies below tests/, else those that name its folder."""
    by_name = [name for name in texts if is_test(PurePosixPath(name)) and path.name in texts[name]]
    if by_name or path.parts[0] != "tests":
        return by_name
    return [name for name in texts if is_test(PurePosixPath(name)) and f'"{path.parent.name}"' in texts[name]]


def _below(folder: PurePosixPath, texts: Mapping[str, str]) -> list[str]:
    return [name for name in texts if is_test(PurePosixPath(name)) and PurePosixPath(name).is_relative_to(folder)]


def is_test(path: PurePosixPath) -> bool:
    """Return whether `path` is a file of tests: not what they share."""
    return path.name.startswith("test_") and path.suffix == ".py"
