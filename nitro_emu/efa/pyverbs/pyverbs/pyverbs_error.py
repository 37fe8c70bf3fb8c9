"""The errors of pyverbs."""

from __future__ import annotations

import os


class PyverbsError(Exception):
    """Root of pyverbs' errors."""

    def __init__(self, msg: str, error_code: int = -1) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_code = error_code

    def __str__(self) -> str:
        """Return the message."""
        return self.msg


class PyverbsRDMAError(PyverbsError):
    """A verbs call failed. `error_code` is its errno, positive."""

    def __init__(self, msg: str, error_code: int = -1) -> None:
        text = f". Errno: {error_code}, {os.strerror(error_code)}" if error_code > 0 else ""
        super().__init__(msg + text, error_code)


class PyverbsUserError(PyverbsError):
    """An argument that pyverbs itself refuses."""
