"""Which tests a changed file asks for, the nearest to it first.

Rules.
1. Tests mirror the tree: `a/b/c.py` asks first for tests/a/b/test_c.py and test_c_*.py, then for the rest of tests/a/b,
   or of the next folder above it that has tests.
2. The core and what lies directly above it ask for all of the core's tests, after all others.
3. A test asks for itself, what tests share for those that use it, a conftest.py for those below its folder.
4. A file that is no Python asks first for the tests that name it; below tests/, for those that name its folder.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

ALWAYS: Final = "tests/test_architecture.py"  # of all files, in three seconds
CORE: Final = "tests/srd/proto/"
ABOVE_CORE: Final = re.compile(r"srd/(proto/.*|io/.*|[^/]*)")
NEAR, FOLDER, FAR = range(3)
_MODULE: Final = re.compile(r"\btests(?:\.\w+)+")
_FROM: Final = re.compile(r"^ *from (tests[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def changed_files(root: Path, base: str | None) -> list[str]:
    """Return what differs from where this branch left `base` (default: the main branch), committed or not, new or gone.

    Raises CalledProcessError with git's reason in `stderr`.
    """

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, text=True).stdout

    mains = git("for-each-ref", "--format=%(refname)", "refs/remotes/origin/main", "refs/heads/main").split()
    fork = git("merge-base", "HEAD", base or max(mains, default="HEAD")).strip()  # max: origin's first
    differing = git("diff", "--name-only", "--no-renames", "-z", fork, "--")
    new = git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted({path for path in (differing + new).split("\0") if path})


def texts_of_tests(root: Path) -> dict[str, str]:
    """Return all modules below tests/: path from the root -> text."""
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted((root / "tests").rglob("*.py"))}


def select(changed: Iterable[str], texts: Mapping[str, str]) -> list[str]:
    """Return the files of tests that `changed` asks for."""
    tests = {name: texts[name] for name in texts if "/test_" in name}
    users = _users(texts)
    nearest = {ALWAYS: NEAR}
    for name in changed:
        path = PurePosixPath(name)
        if name.startswith("tests/"):
            asked = [(test, NEAR) for test in _standing_for(name, tests, users=users, seen=set())]
        else:
            asked = [*_mirrored(path, tests), *((test, FAR) for test in tests if _is_core(name, test))]
        if path.suffix != ".py":
            words = (path.name, f'"{path.parent.name}"' if name.startswith("tests/") else path.name)
            asked += [(test, NEAR) for test, text in tests.items() if any(word in text for word in words)]
        for test, nearness in asked:
            nearest[test] = min(nearness, nearest.get(test, nearness))
    return sorted(nearest, key=lambda test: (nearest[test], test))


def _is_core(name: str, test: str) -> bool:
    return ABOVE_CORE.fullmatch(name) is not None and test.startswith(CORE)


def _mirrored(path: PurePosixPath, tests: Collection[str]) -> Iterator[tuple[str, int]]:
    own = re.compile(rf"test_{re.escape(path.stem)}(_.*)?\.py")
    for folder in ("tests" / path.parent, *("tests" / path.parent).parents):
        below = [test for test in tests if test.rpartition("/")[0] == str(folder)]
        if below:
            yield from ((test, NEAR if own.fullmatch(test.rpartition("/")[2]) else FOLDER) for test in below)
            return


def _users(texts: Mapping[str, str]) -> Mapping[str, Collection[str]]:
    """Return for each module of tests/ the files that name it: to import it, or to run it."""
    users: dict[str, set[str]] = {}
    for name, text in texts.items():
        members = [f"{package}.{word}" for package, words in _FROM.findall(text) for word in re.findall(r"\w+", words)]
        for module in (*_MODULE.findall(text), *members):
            users.setdefault(module.replace(".", "/") + ".py", set()).add(name)
    return users


def _standing_for(
    name: str, tests: Collection[str], *, users: Mapping[str, Collection[str]], seen: set[str]
) -> Iterator[str]:
    """Yield the tests that show whether `name`, a file of tests/, is right."""
    seen.add(name)
    if name in tests:
        yield name
    if name.endswith("/conftest.py"):
        yield from (test for test in tests if test.startswith(name.removesuffix("conftest.py")))
    for user in users.get(name, ()):
        if user not in seen:
            yield from _standing_for(user, tests, users=users, seen=seen)
