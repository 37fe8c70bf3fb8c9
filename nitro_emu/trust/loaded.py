"""What this process may load: measured software, the interpreter's library, and installed distributions.

    without_bytecode()                            # starts the program anew, so that sources are loaded
    LoadGuard(software_root(), on_refused=alarm)  # checks what is loaded, and from here on what is imported

A measurement is of files; this is what makes it one of the process, as the measured software itself looks. A module is
loaded from

1. a file of the image that is measured (`nitro_emu.trust.measure`), or
2. the interpreter's standard library, which PCR1 has the version of, or
3. a directory of site-packages, as a part of an installed distribution, which PCR1 has name and version of.

Anything else ends the start, and later fails as an import: what lies in the working directory, in PYTHONPATH, or loose
in site-packages. Bytecode would be loaded in place of the source that is measured, so a card loads none: each start
compiles what it loads.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Final

from nitro_emu.errors import TrustError
from nitro_emu.trust.measure import is_measured

_STANDARD: Final = ("stdlib", "platstdlib")
_SITE: Final = ("purelib", "platlib")


NO_BYTECODE: Final = os.devnull
"""As the directory of all bytecode: there is nothing beneath, and nothing can be written there."""


def without_bytecode() -> None:
    """Replace this process by the same program without bytecode, unless it is that already."""
    if sys.pycache_prefix != NO_BYTECODE:
        options = ["-X", f"pycache_prefix={NO_BYTECODE}"]
        os.execv(sys.executable, [sys.executable, *options, *sys.orig_argv[1:]])  # noqa: S606 - the same program


class LoadRefusedError(TrustError, ImportError):
    """Code is not loaded, as nobody has measured it. For who tries an import it is an ImportError."""


class LoadGuard(MetaPathFinder):
    """Refuses modules from elsewhere, to the end of the process."""

    def __init__(self, root: Path, *, on_refused: Callable[[str], None]) -> None:
        """Check what is loaded, and then each import. Raises TrustError; `on_refused` hears of later ones.

        `root`: the directory of the measured packages.
        """
        if sys.pycache_prefix != NO_BYTECODE:
            where = sys.pycache_prefix or "__pycache__"
            raise TrustError(f"bytecode is loaded from {where}; start the card with nitro-card run")
        self._root = os.path.realpath(root)
        self._standard = {os.path.realpath(sysconfig.get_path(name)) for name in _STANDARD}
        places = [*site.getsitepackages(), *map(sysconfig.get_path, _SITE)]
        if site.ENABLE_USER_SITE:
            places.append(site.getusersitepackages())
        self._site = {os.path.realpath(path) for path in places}
        self._distributed = frozenset(packages_distributions())
        self._on_refused = on_refused
        for name, module in list(sys.modules.items()):
            if name != "__main__" and (file := getattr(module, "__file__", None)) is not None:
                self._check(name, file)
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders find. Raises LoadRefusedError."""
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            if (spec := finder.find_spec(fullname, path, target)) is not None:
                if spec.has_location and spec.origin is not None:
                    try:
                        self._check(fullname, spec.origin)
                    except LoadRefusedError as error:
                        self._on_refused(str(error))
                        raise
                return spec
        return None

    def _check(self, name: str, file: str) -> None:
        directory = os.path.realpath(os.path.dirname(file))  # noqa: PTH120 - of many modules; a file may be a link
        place = os.path.join(directory, os.path.basename(file))  # noqa: PTH118, PTH119
        if place.startswith(self._root + os.sep) and is_measured(place[len(self._root) + 1 :]):
            return
        within = {parent for parent in (*self._site, *self._standard) if place.startswith(parent + os.sep)}
        nearest = max(within, key=len, default=None)  # site-packages may be within the standard library
        if nearest is None or (nearest in self._site and name.partition(".")[0] not in self._distributed):
            raise LoadRefusedError(
                f"{name} is loaded from {file}, which belongs neither to the measured software nor to an installed "
                "distribution; remove it, or leave its directory out of PYTHONPATH"
            )
