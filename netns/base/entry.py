"""The entry point of a command, or which extra it lacks: the transport is installed without what command lines need.

main = partial(start, "srd-lab", "netns.cli:main", extra="lab", libraries=("click", ...))
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib import import_module
from typing import Any

from netns.base.standard_streams import open_closed


def start(name: str, command: str, *, extra: str, libraries: Collection[str]) -> None:
    """Run a command, MODULE:OBJECT. `libraries`: what the extra brings, by the names of their modules."""
    open_closed()
    try:
        loaded(command)()  # imports what a command needs when it is used
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in libraries:
            raise
        sys.exit(f"{name}: needs {error.name}; install it, in the checkout: pip install '.[{extra}]'")


def loaded(target: str) -> Any:
    """Return the object MODULE:OBJECT."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)
