"""What stands in for a function that fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn


def failing(error: Exception) -> Callable[..., NoReturn]:
    """Return a function that raises this error, whatever its arguments."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


def refusing(code: int) -> Callable[..., NoReturn]:
    """Return a system call that fails with this number of errno."""
    return failing(OSError(code, os.strerror(code)))
