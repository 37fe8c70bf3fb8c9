"""Numbers for the objects of a virtual function, and the objects by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nitro_emu.efa.abi.enums import AdminStatus
from nitro_emu.efa.abi.limits import MAX_KEY
from nitro_emu.efa.card.completion_queue import CardCompletionQueue
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.efa.card.memory_region import CardMemoryRegion
from nitro_emu.efa.card.objects import CardAddressHandle, CardProtectionDomain
from nitro_emu.efa.card.queue_pair import CardQueuePair
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


@dataclass(slots=True)
class Tables:
    """One table a kind."""

    queue_pairs: Table[CardQueuePair]
    completion_queues: Table[CardCompletionQueue]
    domains: Table[CardProtectionDomain]
    handles: Table[CardAddressHandle]
    memory: Table[CardMemoryRegion]
    """By lkey."""
    by_rkey: dict[int, CardMemoryRegion] = field(default_factory=dict)
    registered_bytes: int = 0
    """Of all that is mapped, also of what was deregistered and is still in use."""
    lingering: int = 0
    """Memory regions that were deregistered and are still in use."""

    @classmethod
    def of(cls, config: EfaConfig) -> Tables:
        """Return empty tables with the limits of the settings."""
        return cls(
            Table("queue pairs", limit=config.max_qps, numbers=1 << 16),
            Table("completion queues", limit=config.max_cqs, numbers=1 << 16),
            Table("protection domains", limit=config.max_pds, numbers=1 << 16),
            Table("address handles", limit=config.max_ahs, numbers=(1 << 16) - 1),
            Table("memory regions", limit=config.max_mrs, numbers=MAX_KEY),
        )
