"""One program's connection to a virtual function: its doorbells, and the objects that it has made.

Everything belongs to the connection: no other can name it, and it is destroyed with the connection, in whatever state.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from devmem.region import Region
from nitro_emu.efa.abi.enums import AdminStatus, AenqGroup
from nitro_emu.efa.abi.memory import uar_bytes
from nitro_emu.efa.card.completion_queue import CompletionQueue
from nitro_emu.efa.card.doorbells import Doorbells
from nitro_emu.efa.card.event_ring import QP_ERROR, EventRing
from nitro_emu.efa.card.function import EfaFunction
from nitro_emu.efa.card.memory_region import MemoryRegion
from nitro_emu.efa.card.objects import AddressHandle, ProtectionDomain
from nitro_emu.efa.card.queue_pair import QueuePair
from nitro_emu.efa.card.shared import EventSender, new_eventfd, shared_region
from nitro_emu.errors import AdminError

T = TypeVar("T")
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
class QpSlot:
    """A queue pair, and its doorbells."""

    qp: QueuePair
    slot: int
    sq_offset: int
    rq_offset: int


@dataclass(slots=True, eq=False)
class CqSlot:
    """A completion queue, and its doorbell."""

    cq: CompletionQueue
    slot: int
    offset: int


@dataclass(slots=True, eq=False)
class UserContext:
    """The objects of one program."""

    vf: EfaFunction
    pid: int
    uar: Uar | None = None
    domains: dict[int, ProtectionDomain] = field(default_factory=dict)
    memory: dict[int, MemoryRegion] = field(default_factory=dict)
    """By lkey."""
    cqs: dict[int, CqSlot] = field(default_factory=dict)
    qps: dict[int, QpSlot] = field(default_factory=dict)
    """By handle, which is the number."""
    handles: dict[int, AddressHandle] = field(default_factory=dict)

    def own(self, objects: dict[int, T], number: int, *, name: str) -> T:
        """Return an object of this connection. Raises AdminError for a number that is not one's."""
        found = objects.get(number)
        if found is None:
            raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"{name}: {number} is none of this connection")
        return found

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

    # -- destruction --------------------------------------------------------------------------------------------------

    def destroy_qp(self, number: int) -> None:
        """Destroy a queue pair."""
        slot = self.qps.pop(number)
        if self.uar is not None:
            for offset in (slot.sq_offset, slot.rq_offset):
                self.uar.doorbells.unwatch(offset)
            self.uar.free_qp_slots.append(slot.slot)
            self.uar.queues -= 1
        self.vf.remove_queue_pair(slot.qp)

    def destroy_cq(self, number: int) -> None:
        """Destroy a completion queue that no queue pair uses."""
        slot = self.cqs.pop(number)
        self.vf.tables.completion_queues.remove(number)
        if self.uar is not None:
            self.uar.doorbells.unwatch(slot.offset)
            self.uar.free_cq_slots.append(slot.slot)
            self.uar.queues -= 1
        slot.cq.close()
        if slot.cq.events is not None:
            slot.cq.events.close()

    def destroy_handle(self, number: int) -> None:
        """Destroy an address handle."""
        self.vf.drop_handle(self.handles.pop(number))

    def destroy_memory(self, lkey: int) -> None:
        """Deregister memory."""
        self.vf.drop_memory(self.memory.pop(lkey))

    def destroy_domain(self, number: int) -> None:
        """Free a protection domain that nothing uses."""
        del self.domains[number]
        self.vf.tables.domains.remove(number)

    def _objects(self) -> tuple[tuple[Callable[[int], None], Iterable[int]], ...]:
        """What destroys objects, with these, in the order of dependence."""
        return (
            (self.destroy_qp, self.qps),
            (self.destroy_cq, self.cqs),
            (self.destroy_memory, self.memory),
            (self.destroy_handle, self.handles),
            (self.destroy_domain, self.domains),
        )

    def destruction(self) -> Iterator[None]:
        """Destroy everything, an object a step."""
        for destroy, objects in self._objects():
            for number in list(objects):
                destroy(number)
                yield
        self.close_uar()

    def close(self) -> None:
        """Destroy everything at once, even if a step raises."""
        with ExitStack() as stack:  # runs from the last callback to the first
            stack.callback(self.close_uar)
            for destroy, objects in reversed(self._objects()):
                for number in list(objects):
                    stack.callback(destroy, number)

    # -- events -------------------------------------------------------------------------------------------------------

    def queue_pairs_of(self, cq: CompletionQueue) -> Iterator[QueuePair]:
        """Yield the queue pairs that complete into a queue."""
        for slot in self.qps.values():
            if cq in (slot.qp.send_cq, slot.qp.recv_cq):
                yield slot.qp

    def warn(self, *, syndrome: int, number: int) -> None:
        """Report a program's mistake to it."""
        if self.uar is not None:
            self.uar.events.push(AenqGroup.WARNING, syndrome=syndrome, data=number.to_bytes(4, "little"))

    def on_broken(self, qp: QueuePair) -> None:
        """Report that a queue pair is in the error state."""
        self.warn(syndrome=QP_ERROR, number=qp.number)
