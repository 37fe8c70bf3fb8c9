"""A queue that takes almost no memory while it is empty, unlike a `deque`: a peer has several.

For the same reason the dictionaries of what is open at a peer are cleared when their last entry was removed: until then
they keep the table of their entries, 160 bytes or more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class LazyDeque(Generic[T]):
    """A FIFO with the part of `deque`'s interface that is used here."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: deque[T] | None = None  # None: empty

    def __len__(self) -> int:
        return 0 if self._items is None else len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items or ())

    def __getitem__(self, index: int) -> T:
        if self._items is None:
            raise IndexError("the queue is empty")
        return self._items[index]

    def append(self, item: T) -> None:
        """Append an item."""
        if self._items is None:
            self._items = deque()
        self._items.append(item)

    def popleft(self) -> T:
        """Remove and return the first item. Raises IndexError when there is none."""
        if self._items is None:
            raise IndexError("the queue is empty")
        item = self._items.popleft()
        if not self._items:
            self._items = None
        return item
