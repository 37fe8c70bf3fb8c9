"""The objects of all programs of a virtual function, by number; and what the two directions use of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from nitro_emu.counters import PortCounters
from nitro_emu.efa.abi.limits import MAX_KEY
from nitro_emu.efa.card.completion_queue import CardCompletionQueue
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.efa.card.memory_region import CardMemoryRegion
from nitro_emu.efa.card.objects import CardAddressHandle, CardProtectionDomain
from nitro_emu.efa.card.queue_pair import CardQueuePair
from nitro_emu.efa.card.tables import Table
from nitro_emu.peers.endpoint import VfEndpoint


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


class Vf(Protocol):
    """A virtual function, as its requester and its responder use it."""

    tables: Tables
    port: PortCounters
    endpoint: VfEndpoint
    mtu_bytes: int
    """The longest send."""

    def run_soon(self, work: Callable[[], None]) -> None:
        """Call `work` in the next pass."""

    def run_later(self, qp: CardQueuePair) -> None:
        """Look at a send queue in the next pass."""

    def break_queue_pair(self, qp: CardQueuePair, reason: str) -> None:
        """Put a queue pair whose program broke the rules of a ring into the error state."""
