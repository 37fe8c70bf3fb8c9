"""One direction of a link whose near end has queues: packets wait here, by class, until the port may send them.

Classes from CONTROL on go first, the highest before the others; the rest take turns. Time on the wire carries the
fractions of a nanosecond from packet to packet, so that a busy port has exactly its rate.

A host's port asks for packets: `on_ready` is called whenever it may have become free, and `accepts` says for which
class. What is sent without being asked waits in the host's queue, which is as long as it must be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from netns.backends.virtual.event_queue import EventQueue
from netns.backends.virtual.lossless.profile import CLASSES, CONTROL, NS_PER_S, SwitchProfile
from netns.backends.virtual.virtual_link import Packet, VirtualLink
from netns.errors import ShapeError
from netns.netem.changes import AnyShape, effective
from netns.netem.prandom import U32_MAX
from netns.netem.shape import Shape

_STRICT: Final = 1 << CONTROL
_WIRE: Final = {
    "rate_bps": 0,
    "limit_packets": U32_MAX,
    "derived_limit": None,
    "ce_threshold_us": None,
    "rate_overhead_bytes": 0,
    "cell_bytes": 0,
    "cell_overhead_bytes": 0,
}
"""What the wire does not have of the shape: the port has it."""


class PortOwner:
    """What a port asks before it queues a packet, and tells after it has sent one: its switch."""

    def admit(self, packet: Packet, *, port: EgressPort, now_ns: int) -> bool:
        """Whether there is room for the packet."""
        raise NotImplementedError

    def release(self, packet: Packet, *, now_ns: int) -> None:
        """Take back the packet's room."""
        raise NotImplementedError


class EgressPort(VirtualLink):
    """Counters: `overlimit` (packets without room), `discarded` (by the watchdog), `pauses` and `paused_ns`."""

    def __init__(self, name: str, *, shape: Shape, seed: int, events: EventQueue, profile: SwitchProfile) -> None:
        """Raises ShapeError if the shape has no rate."""
        self.owner: PortOwner | None = None
        """The switch at its near end; None: a host."""
        self.on_ready: Callable[[int], None] | None = None
        self.rate_bps = 0
        self.sending: Packet | None = None
        self.free_at_ns = 0
        """When the packet that is being sent has left."""
        self.queued_bytes = [0] * CLASSES
        self.paused = 0
        """The paused classes, as bits; `storming` those in which the watchdog drops everything."""
        self.storming = 0
        self.paused_since_ns = [0] * CLASSES
        self.last_pause_ns = [-1] * CLASSES
        self.overlimit = self.discarded = self.pauses = self.paused_ns = 0
        self._profile = profile
        self._queues: list[deque[Packet]] = [deque() for _ in range(CLASSES)]
        self._backlog = 0
        self._turn = 0
        self._carried = 0
        self._paused_until_ns = [0] * CLASSES
        self._expiry_armed = False
        self._rng = Random(f"{profile.seed}/{seed}/red")  # noqa: S311 - reproducible
        super().__init__(name, shape=shape, seed=seed, events=events)

    def reshape(self, new: AnyShape) -> None:
        """Change rate and wire; the packet that is being sent keeps its time. Raises ShapeError without a rate."""
        shape = effective(new)
        if not shape.rate_bps:
            raise ShapeError(f"{self.name}: a port of a switch with a shared buffer needs a rate, as in rate 100gbit")
        super().reshape(shape.with_fields(_WIRE))
        self.shape = new
        self.rate_bps = shape.rate_bps

    @property
    def wait_ns(self) -> int:
        """How long a packet that arrived now would queue, if no class is paused."""
        left_ns = self.free_at_ns - self._events.now_ns if self.sending is not None else 0
        return left_ns + sum(self.queued_bytes) * 8 * NS_PER_S // self.rate_bps

    def counters(self) -> dict[str, int]:
        """Return all counters, by name; `overlimit` includes what there was no room for, `blackholed` the discarded."""
        found = super().counters()
        found["overlimit"] += self.overlimit
        found["blackholed"] += self.discarded
        return found | {"pauses": self.pauses}

    @property
    def delay_ns(self) -> int:
        """Of the wire."""
        return round(effective(self.shape).delay_us * 1000)

    def wire_ns(self, length_bytes: int) -> int:
        """How long a frame of this length takes."""
        return length_bytes * 8 * NS_PER_S // self.rate_bps

    def waiting(self, number: int) -> Iterable[Packet]:
        """The packets that wait in a class."""
        return self._queues[number]

    def accepts(self, number: int) -> bool:
        """Whether a packet of this class would leave at once."""
        return self.sending is None and not (self._backlog | self.paused) >> number & 1

    def transmit(self, packet: Packet, now_ns: int) -> None:
        """Queue a packet, if its switch has room for it."""
        if self.owner is not None and not self.owner.admit(packet, port=self, now_ns=now_ns):
            self.overlimit += 1
            self._log("overlimit", packet)
            return
        number = packet.flow.priority
        self._queues[number].append(packet)
        self.queued_bytes[number] += packet.length_bytes
        self._backlog |= 1 << number
        if self.sending is None:
            self._serve(now_ns)

    def _serve(self, now_ns: int) -> None:
        """Begin to send the next packet, if there is one whose class is not paused."""
        ready = self._backlog & ~self.paused
        if not ready:
            self._carried = 0
            return
        if ready >= _STRICT:
            number = ready.bit_length() - 1
        else:
            above = ready >> (self._turn + 1) << (self._turn + 1)
            lowest = above or ready
            self._turn = number = (lowest & -lowest).bit_length() - 1
        queue = self._queues[number]
        packet = queue.popleft()
        self.queued_bytes[number] -= packet.length_bytes
        if not queue:
            self._backlog &= ~(1 << number)
        self._mark(packet, number)
        scaled = packet.length_bytes * 8 * NS_PER_S + self._carried
        self._carried = scaled % self.rate_bps
        self.sending, self.free_at_ns = packet, now_ns + scaled // self.rate_bps
        self._events.at(self.free_at_ns, self._sent)

    def _mark(self, packet: Packet, number: int) -> None:
        """Mark by the queue that the packet leaves behind, as switches do, and HPCC's simulator."""
        profile = self._profile.classes.get(number)
        if profile is None or profile.red is None or self.owner is None:
            return
        chance = profile.red.probability(self.queued_bytes[number])
        if chance >= 1 or (chance and self._rng.random() < chance):
            packet.marked = True
            self.marked += 1

    def _sent(self, now_ns: int) -> None:
        packet = self.sending
        assert packet is not None, "an event of a packet"  # noqa: S101 - for the type
        self.sending = None
        if self.owner is not None:
            self.owner.release(packet, now_ns=now_ns)
        super().transmit(packet, now_ns)
        self._ready(now_ns)

    def _ready(self, now_ns: int) -> None:
        if self.on_ready is not None:
            self.on_ready(now_ns)
        if self.sending is None:
            self._serve(now_ns)

    # -- pauses -------------------------------------------------------------------------------------------------

    def pause(self, number: int, *, for_ns: int) -> None:
        """Take a PFC frame: stop the class after the packet that is being sent, for so long at most; 0: go on."""
        now_ns, bit = self._events.now_ns, 1 << number
        if for_ns:
            self.last_pause_ns[number] = now_ns
        if self.storming & bit:
            return
        if not for_ns:
            self._resume(number, now_ns)
            return
        self._paused_until_ns[number] = now_ns + for_ns
        if not self.paused & bit:
            self.paused |= bit
            self.paused_since_ns[number] = now_ns
            self.pauses += 1
        if not self._expiry_armed:
            self._expiry_armed = True
            self._events.at(now_ns + for_ns, self._expire)

    def _resume(self, number: int, now_ns: int) -> None:
        if self.paused >> number & 1:
            self.paused &= ~(1 << number)
            self.paused_ns += now_ns - self.paused_since_ns[number]
            if self.sending is None:
                self._ready(now_ns)

    def _expire(self, now_ns: int) -> None:
        """End the pauses whose time is over; one timer serves all."""
        self._expiry_armed = False
        for number in range(CLASSES):
            if self.paused >> number & 1 and self._paused_until_ns[number] <= now_ns:
                self._resume(number, now_ns)
        if self.paused and not self._expiry_armed:
            self._expiry_armed = True
            at_ns = min(self._paused_until_ns[number] for number in range(CLASSES) if self.paused >> number & 1)
            self._events.at(at_ns, self._expire)

    def begin_storm(self, number: int) -> None:
        """The watchdog's `drop`: discard what waits in the class, heed no pause, take no packet."""
        now_ns = self._events.now_ns
        self.storming |= 1 << number
        self._backlog &= ~(1 << number)
        packets, self._queues[number] = self._queues[number], deque()
        self.queued_bytes[number] = 0
        self.discarded += len(packets)
        for packet in packets:
            if self.owner is not None:
                self.owner.release(packet, now_ns=now_ns)
        self._resume(number, now_ns)

    def end_storm(self, number: int) -> None:
        """Treat the class as before."""
        self.storming &= ~(1 << number)
