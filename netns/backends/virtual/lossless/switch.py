"""A switch: its shared buffer, its egress ports, and the pauses it asks of those that send to it.

A pause frame waits for the packet that is being sent in its direction, and takes its own time and the cable's; what it
uses of the bandwidth is left out (84 bytes). It asks for the longest time, is sent again while the reason lasts, and is
taken back as soon as it does not. So a switch that dies pauses nobody for longer than that time.
"""

from __future__ import annotations

from functools import partial

from netns.backends.virtual.event_queue import EventQueue
from netns.backends.virtual.lossless.egress_port import EgressPort, PortOwner
from netns.backends.virtual.lossless.profile import (
    BUFFER_BYTES_PER_GBPS,
    CLASSES,
    LEAST_FRAMES,
    LONGEST_PAUSE_QUANTA,
    NS_PER_S,
    PFC_FRAME_BYTES,
    QUANTUM_BITS,
    ClassProfile,
    SwitchProfile,
    headroom_bytes,
)
from netns.backends.virtual.lossless.shared_buffer import PriorityGroup, SharedBuffer
from netns.backends.virtual.virtual_link import Packet, VirtualLink
from netns.errors import BackendError


def longest_pause_ns(rate_bps: int) -> int:
    """Return how long a pause lasts that is neither sent again nor taken back: 335.5 us at 100 Gbit/s."""
    return LONGEST_PAUSE_QUANTA * QUANTUM_BITS * NS_PER_S // rate_bps


class Ingress:
    """One class of one ingress port: the group of its bytes, and whom to pause."""

    __slots__ = ("asked_at_ns", "group", "is_pausing", "number", "refresh_armed", "reverse", "upstream")

    def __init__(self, number: int, *, group: PriorityGroup, upstream: EgressPort, reverse: EgressPort) -> None:
        self.number = number
        self.group = group
        self.upstream = upstream
        self.reverse = reverse
        """The direction in which the pause frames go."""
        self.is_pausing = self.refresh_armed = False
        self.asked_at_ns = 0


class BufferedSwitch(PortOwner):
    """`dropped` counts packets without room, by class; `most_bytes` is the most that was ever held."""

    def __init__(
        self,
        name: str,
        *,
        links: list[tuple[EgressPort, EgressPort]],
        profile: SwitchProfile,
        frame_bytes: int,
        events: EventQueue,
    ) -> None:
        """`links`: for each neighbour the direction to here and that from here. Raises BackendError."""
        self.name = name
        self.dropped = [0] * CLASSES
        self.most_bytes = 0
        self.held_bytes = 0
        self._events = events
        self._pausing: list[Ingress] = []
        self.ingresses: dict[VirtualLink, list[Ingress]] = {}
        for upstream, reverse in links:
            reverse.owner = self
            self.ingresses[upstream] = [
                Ingress(
                    number, group=_group(number, upstream, profile, frame_bytes), upstream=upstream, reverse=reverse
                )
                for number in range(CLASSES)
            ]
        groups = [ingress.group for row in self.ingresses.values() for ingress in row]
        total = profile.buffers.get(name) or profile.buffer_bytes
        if total is None:
            by_rate = round(sum(port.rate_bps for _, port in links) / 1e9 * BUFFER_BYTES_PER_GBPS)
            kept = sum(group.reserve_limit + group.headroom_limit for group in groups)
            total = max(by_rate, LEAST_FRAMES * frame_bytes * len(links), 2 * kept)
        try:
            self.buffer = SharedBuffer(
                total_bytes=total, groups=groups, resume_offset_bytes=profile.resume_offset_bytes
            )
        except ValueError as error:
            raise BackendError(f"switch {name}: {error}; give it more, or use shorter links") from None

    def admit(self, packet: Packet, *, port: EgressPort, now_ns: int) -> bool:
        """Take the packet into the buffer, and pause its sender if that is due."""
        number, length_bytes = packet.flow.priority, packet.length_bytes
        ingress = self.ingresses[packet.links[packet.hop - 1]][number]
        if (port.storming | ingress.reverse.storming) >> number & 1:
            port.discarded += 1
            return False
        group = ingress.group
        if not self.buffer.admit(group, length_bytes=length_bytes, queue_bytes=port.queued_bytes[number]):
            self.dropped[number] += 1
            return False
        self.held_bytes += length_bytes
        self.most_bytes = max(self.most_bytes, self.held_bytes)
        if group.lossless and not ingress.is_pausing and self.buffer.pause_due(group):
            ingress.is_pausing = True
            self._pausing.append(ingress)
            self._ask(ingress, now_ns)
        return True

    def release(self, packet: Packet, *, now_ns: int) -> None:
        """Free the packet's room, and let go on who may: any group, since the thresholds move with the free room."""
        ingress = self.ingresses[packet.links[packet.hop - 1]][packet.flow.priority]
        self.buffer.release(ingress.group, length_bytes=packet.length_bytes)
        self.held_bytes -= packet.length_bytes
        for each in self._pausing[:]:
            if self.buffer.resume_due(each.group):
                each.is_pausing = False
                self._pausing.remove(each)
                self._send_frame(each, 0, now_ns)

    def _ask(self, ingress: Ingress, now_ns: int) -> None:
        """Send a pause, and make sure that it is sent again in time."""
        ingress.asked_at_ns = now_ns
        pause_ns = longest_pause_ns(ingress.upstream.rate_bps)
        self._send_frame(ingress, pause_ns, now_ns)
        if not ingress.refresh_armed:
            ingress.refresh_armed = True
            self._events.at(now_ns + pause_ns // 2, partial(self._refresh, ingress))

    def _refresh(self, ingress: Ingress, now_ns: int) -> None:
        ingress.refresh_armed = False
        if not ingress.is_pausing:
            return
        due_ns = ingress.asked_at_ns + longest_pause_ns(ingress.upstream.rate_bps) // 2
        if due_ns <= now_ns:
            self._ask(ingress, now_ns)
        else:  # asked since this timer was set
            ingress.refresh_armed = True
            self._events.at(due_ns, partial(self._refresh, ingress))

    def _send_frame(self, ingress: Ingress, pause_ns: int, now_ns: int) -> None:
        port = ingress.reverse
        if port.failures:
            return
        at_ns = max(now_ns, port.free_at_ns) + port.wire_ns(PFC_FRAME_BYTES) + port.delay_ns
        self._events.at(at_ns, partial(_take_frame, ingress, pause_ns))


def _take_frame(ingress: Ingress, pause_ns: int, _now_ns: int) -> None:
    ingress.upstream.pause(ingress.number, for_ns=pause_ns)


def _group(number: int, upstream: EgressPort, profile: SwitchProfile, frame_bytes: int) -> PriorityGroup:
    headroom = profile.headroom_bytes
    if headroom is None:
        delay_us = upstream.delay_ns / 1000
        headroom = headroom_bytes(rate_bps=upstream.rate_bps, delay_us=delay_us, frame_bytes=frame_bytes)
    return PriorityGroup(
        profile.classes.get(number, ClassProfile()), reserve_bytes=profile.reserve_bytes, headroom_bytes=headroom
    )
