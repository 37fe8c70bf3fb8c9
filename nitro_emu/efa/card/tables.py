"""Numbers for the objects of a virtual function, and the objects by number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from nitro_emu.efa.abi.enums import AdminStatus
from nitro_emu.errors import AdminError

T = TypeVar("T")


class Table(Generic[T]):
    """Objects by number. A number is used again as late as possible, as something old may still name it."""

    def __init__(self, name: str, *, limit: int, numbers: int, first: int = 1) -> None:
        """At most `limit` objects, with numbers from `first` to `numbers` - 1."""
        self._name = name
        self._limit = limit
        self._first = first
        self._numbers = numbers
        self._next = first
        self._objects: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._objects.values()))

    def get(self, number: int) -> T | None:
        """Return the object of this number, if there is one."""
        return self._objects.get(number)

    def reserve(self) -> int:
        """Return a free number. Raises AdminError (RESOURCE_ALLOCATION_FAILURE) if there are too many objects."""
        if len(self._objects) >= self._limit:
            raise AdminError(AdminStatus.RESOURCE_ALLOCATION_FAILURE, f"{self._name}: all {self._limit} are in use")
        while self._next in self._objects:
            self._step()
        number = self._next
        self._step()
        return number

    def _step(self) -> None:
        self._next = self._next + 1 if self._next + 1 < self._numbers else self._first

    def add(self, number: int, item: T) -> None:
        """Add an object under a number from `reserve`."""
        self._objects[number] = item

    def remove(self, number: int) -> None:
        """Remove an object; its number is free."""
        self._objects.pop(number, None)
