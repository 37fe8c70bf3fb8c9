"""What all of pyverbs' objects have in common."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any, Protocol, Self
from weakref import WeakSet

from nitro_emu.errors import VerbsError
from pyverbs.pyverbs_error import PyverbsRDMAError

__all__ = ["PyverbsCM", "PyverbsObject", "PyverbsRDMAErrno", "PyverbsRDMAError", "translated"]


def PyverbsRDMAErrno(msg: str) -> PyverbsRDMAError:  # noqa: N802 - pyverbs' name
    """Return an error with the number that C code has left in errno."""
    return PyverbsRDMAError(msg, ctypes.get_errno())


class translated:  # noqa: N801 - used like a function
    """Raises a VerbsError as a PyverbsRDMAError with the same errno."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Translate."""
        if isinstance(error, VerbsError):
            raise PyverbsRDMAError(f"{self._what}: {error}", error.errno) from error


class Closable(Protocol):
    """What an object of pyverbs stands on."""

    def close(self) -> None:
        """Release it."""


class PyverbsObject:
    """Root of pyverbs' objects."""


class PyverbsCM(PyverbsObject):
    """A context manager. Closing closes first what was created from it; closing twice is allowed.

    An object that nobody refers to is closed, too: the object of `nitro_emu.efa.verbs` that it stands on is.
    """

    def __init__(self, verbs: Closable, *parents: PyverbsCM | None) -> None:
        self._verbs: Any = verbs
        self._children: WeakSet[PyverbsCM] = WeakSet()
        self._parents = parents
        for parent in parents:
            if parent is not None:
                parent._children.add(self)  # noqa: SLF001 - of this class

    def close(self) -> None:
        """Destroy it. Raises PyverbsRDMAError."""
        for child in list(self._children):
            child.close()
        with translated(f"Failed to destroy {type(self).__name__}"):
            self._verbs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
