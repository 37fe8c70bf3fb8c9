"""What a context has the card create: it is destroyed by `close`, when nothing refers to it, or with its context."""

from __future__ import annotations

import weakref
from typing import Self

from nitro_emu.efa.abi import commands
from nitro_emu.efa.verbs.link import Link


class Resource:
    """Base class. A context manager; closing twice is allowed."""

    def __init__(self, link: Link, *, destroy: commands.Command) -> None:
        self._link = link
        self._destroy = destroy
        self._abandon = weakref.finalize(self, link.abandon, destroy)
        self._abandon.atexit = False  # the connection's end does it
        self.closed = False
        """Whether it has been closed, or its context has."""
        link.resources.add(self)

    def close(self) -> None:
        """Have the card destroy it, and release its memory here. Raises VerbsError while it is in use (EBUSY)."""
        if not self.closed:
            self._link.destroy(self._destroy)
            self.release()

    def release(self) -> None:
        """Release what it holds in this process. Its context does this when it is closed."""
        self.closed = True
        self._abandon.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
