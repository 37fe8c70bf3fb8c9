"""One program's connection to a virtual function: its doorbells, and the objects that it has made.

Everything belongs to the connection: no other can name it, and it is destroyed with the connection, in whatever state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from devmem.region import Region
from nitro_emu.efa.abi.enums import AdminStatus, AenqGroup
from nitro_emu.efa.abi.memory import cq_doorbell_offset, rq_doorbell_offset, sq_doorbell_offset, uar_bytes
from nitro_emu.efa.card.completion_queue import CardCompletionQueue
from nitro_emu.efa.card.doorbells import Doorbells
from nitro_emu.efa.card.event_ring import EventRing
from nitro_emu.efa.card.function import EfaFunction
from nitro_emu.efa.card.memory_region import CardMemoryRegion
from nitro_emu.efa.card.objects import CardAddressHandle, CardProtectionDomain
from nitro_emu.efa.card.queue_pair import CardQueuePair
from nitro_emu.efa.card.shared import EventSender, new_eventfd, shared_region
from nitro_emu.efa.card.tables import Table
from nitro_emu.errors import AdminError

Object = CardQueuePair | CardCompletionQueue | CardMemoryRegion | CardAddressHandle | CardProtectionDomain
T = TypeVar("T", CardQueuePair, CardCompletionQueue, CardMemoryRegion, CardAddressHandle, CardProtectionDomain)
_ORDER: Final = (CardQueuePair, CardCompletionQueue, CardMemoryRegion, CardAddressHandle, CardProtectionDomain)
"""Kinds of objects, each before those that it uses."""
UAR: int = 1
"""The number of a connection's page of doorbells; it has one."""


@dataclass(slots=True, eq=False)
class Uar:
    """A page of doorbells, and what belongs to it."""

    region: Region
    events: EventRing
    kick_fd: int
    sender: EventSender
    """Of its events."""
    doorbells: Doorbells
    free_qp_slots: list[int]
    free_cq_slots: list[int]
    queues: int = 0
    """Queue pairs and completion queues that use it."""


@dataclass(slots=True, eq=False)
class UserContext:
    """The objects of one program."""

    vf: EfaFunction
    pid: int
    uar: Uar | None = None
    objects: dict[Object, None] = field(default_factory=dict)
    """What it has made; the tables of the virtual function have it by number."""

    def own(self, table: Table[T], number: int, *, name: str) -> T:
        """Return an object of this connection. Raises AdminError for a number that is not one's."""
        found = table.get(number)
        if found is None or found not in self.objects:
            raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"{name}: {number} is none of this connection")
        return found

    def add(self, table: Table[T], number: int, item: T) -> None:
        """Add an object of this connection."""
        table.add(number, item)
        self.objects[item] = None

    def need_uar(self, number: int) -> Uar:
        """Return the page of doorbells. Raises AdminError if it is not allocated, or has another number."""
        if self.uar is None or number != UAR:
            raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"uar: {number} is none of this connection")
        return self.uar

    def open_uar(self) -> Uar:
        """Allocate the page of doorbells. The caller closes `sender.program_fd`. Raises AdminError."""
        config = self.vf.config
        with ExitStack() as opened:
            kick_fd = new_eventfd()
            opened.callback(os.close, kick_fd)
            sender = EventSender()
            opened.callback(sender.close)
            opened.callback(os.close, sender.program_fd)
            region = shared_region(uar_bytes(max_qp=config.max_qps, max_cq=config.max_cqs), name="nitro-uar")
            opened.callback(region.close)
            events = EventRing(sender)
            opened.callback(events.close)
            doorbells = Doorbells(region, events.region)
            slots = list(range(config.max_qps))[::-1], list(range(config.max_cqs))[::-1]
            self.uar = Uar(region, events, kick_fd, sender, doorbells, *slots)
            opened.pop_all()
        self.vf.poller.add(doorbells, kick_fd=kick_fd, vf=self.vf)
        return self.uar

    def close_uar(self) -> None:
        """Free the page of doorbells, if there is one."""
        uar, self.uar = self.uar, None
        if uar is None:
            return
        self.vf.poller.remove(uar.doorbells, kick_fd=uar.kick_fd)
        with ExitStack() as stack:
            stack.callback(uar.region.close)
            stack.callback(uar.events.close)
            stack.callback(uar.doorbells.close)
            stack.callback(uar.sender.close)
            stack.callback(os.close, uar.kick_fd)

    def watch(self, qp: CardQueuePair) -> None:
        """Let a queue pair's doorbells begin at 0, and look at them."""
        doorbells = self.need_uar(UAR).doorbells
        doorbells.watch(sq_doorbell_offset(qp.slot), partial(self.vf.on_send_doorbell, qp))
        doorbells.watch(rq_doorbell_offset(qp.slot), partial(self.vf.on_recv_doorbell, qp))

    # -- destruction --------------------------------------------------------------------------------------------------

    def destroy(self, item: Object) -> None:
        """Destroy an object of this connection that none of its other objects uses."""
        del self.objects[item]
        match item:
            case CardQueuePair():
                offsets = sq_doorbell_offset(item.slot), rq_doorbell_offset(item.slot)
                self._unwatch(offsets, slot=item.slot, free=lambda uar: uar.free_qp_slots)
                self.vf.remove_queue_pair(item)
            case CardCompletionQueue():
                offset = cq_doorbell_offset(item.slot, max_qp=self.vf.config.max_qps)
                self._unwatch((offset,), slot=item.slot, free=lambda uar: uar.free_cq_slots)
                self.vf.tables.completion_queues.remove(item.number)
                item.close()
            case CardMemoryRegion():
                self.vf.drop_memory(item)
            case CardAddressHandle():
                self.vf.drop_handle(item)
            case CardProtectionDomain():
                self.vf.tables.domains.remove(item.number)

    def _unwatch(self, offsets: Iterable[int], *, slot: int, free: Callable[[Uar], list[int]]) -> None:
        if self.uar is not None:
            for offset in offsets:
                self.uar.doorbells.unwatch(offset)
            free(self.uar).append(slot)
            self.uar.queues -= 1

    def _in_order(self) -> list[Object]:
        """Return all objects, those before others that these use."""
        return sorted(self.objects, key=lambda item: _ORDER.index(type(item)))

    def destruction(self) -> Iterator[None]:
        """Destroy everything, an object a step."""
        for item in self._in_order():
            self.destroy(item)
            yield
        self.close_uar()

    def close(self) -> None:
        """Destroy everything at once, even if a step raises."""
        with ExitStack() as stack:  # runs from the last callback to the first
            stack.callback(self.close_uar)
            for item in reversed(self._in_order()):
                stack.callback(self.destroy, item)

    # -- events -------------------------------------------------------------------------------------------------------

    def queue_pairs_of(self, cq: CardCompletionQueue) -> Iterator[CardQueuePair]:
        """Yield the queue pairs that complete into a queue."""
        for item in self.objects:
            if isinstance(item, CardQueuePair) and cq in (item.send_cq, item.recv_cq):
                yield item

    def warn(self, *, syndrome: int, number: int) -> None:
        """Report a program's mistake to it."""
        if self.uar is not None:
            self.uar.events.push(AenqGroup.WARNING, syndrome=syndrome, data=number.to_bytes(4, "little"))
