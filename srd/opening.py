"""What `connect`, `listen` and `open` return: something to await, or to use in `async with`.

    peer = await endpoint.connect("192.0.2.7", 19870)                # to be closed by the caller
    async with endpoint.connect("192.0.2.7", 19870) as peer: ...    # closed at the end of the block

It is a coroutine, so that tasks, task groups and timeouts take it, too.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar


class AsyncClosable(Protocol):
    """An endpoint or a peer."""

    async def close(self) -> None:
        """Close it."""


Opened = TypeVar("Opened", bound=AsyncClosable)


class Opening(Coroutine[Any, Any, Opened], Generic[Opened]):
    """An endpoint or a peer that is being opened."""

    __slots__ = ("_coroutine", "_opened")

    def __init__(self, coroutine: Coroutine[Any, Any, Opened]) -> None:
        self._coroutine = coroutine
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, Any, Opened]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Resume it; see `collections.abc.Coroutine`."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception in it; see `collections.abc.Coroutine`."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Give it up before it was awaited; see `collections.abc.Coroutine`."""
        self._coroutine.close()

    async def __aenter__(self) -> Opened:
        self._opened = await self._coroutine
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            await self._opened.close()
