"""How a driver keeps to its endpoint's allowance (see `allowance`, rules 2 to 6). Without one, nothing waits.

While the outgoing allowance is exhausted no data is sent, and while the incoming one is, nothing is read. Both wait for
a known time, so the timer ends the wait, and nothing is polled until then. Control packets go out nevertheless.
Timeouts are left alone while nothing may be read: ACKs may wait unread, and what they acknowledge would be declared
lost.
"""

from __future__ import annotations

import time

from srd.io.allowance import MARK_AFTER_S, Allowance, AllowanceExceeded, DirectionLimit
from srd.io.rx_buffers import SUPER_BYTES
from srd.io.rx_memory import RxBatch
from srd.proto.endpoint.core import EndpointCore
from srd.proto.wire.control import Datagram
from srd.proto.wire.data import HEADER_BYTES, MAX_BURST_PACKETS, MAX_TRAIN_PACKETS, Burst


class Throttle:
    """No allowance: everything goes at once."""

    def __init__(self) -> None:
        self.unread: set[int] = set()
        """Sockets that are readable and were left unread: the next ones to be read."""

    def may_read(self) -> bool:
        """Whether anything may be read now."""
        return True

    def in_turn(self, ready: list[int]) -> list[int]:
        """Return these sockets, those first that were left unread, which are forgotten."""
        return ready

    def batch_messages(self, most: int) -> int:
        """Return how many messages (segment trains) the next batch may have, up to `most`."""
        return most

    def charge_batch(self, batch: RxBatch, *, now: float) -> None:
        """Charge what was read; count what had to wait, and mark what waited for long."""

    def poll_transmit(self, core: EndpointCore, *, data_only: bool, now: float) -> Burst | Datagram | None:
        """Return the next thing that the core sends."""
        return core.poll_transmit(now, data_only=data_only)

    def wake_at(self, at: float | None, *, reads: bool, sends: bool) -> float | None:  # noqa: ARG002 - of the interface
        """Return when the next turn is due that is due at `at` without an allowance.

        `reads`: whether the driver does not wait for the incoming allowance; `sends`: whether no socket is full.
        """
        return at

    @property
    def exceeded(self) -> AllowanceExceeded:
        """What had to wait."""
        return AllowanceExceeded()


class AllowanceThrottle(Throttle):
    """An allowance of each direction, and the sockets whose turn is next."""

    def __init__(self, allowance: Allowance, *, overhead_bytes: int, datagram_bytes: int) -> None:
        """`overhead_bytes`: what an IP packet has beside the payload; `datagram_bytes`: the largest UDP payload."""
        super().__init__()
        self.incoming, self.outgoing = DirectionLimit(allowance), DirectionLimit(allowance)
        self._overhead_bytes = overhead_bytes
        self._header_bytes = overhead_bytes - HEADER_BYTES  # what a control packet has beside its own bytes
        self._packet_bytes = self._header_bytes + datagram_bytes
        self._is_behind = False  # whether what is sent was held back before
        self._send_at: float | None = None  # when data that is held back may go

    def may_read(self) -> bool:
        """Whether the incoming allowance is not exhausted."""
        return time.monotonic() >= self.incoming.ready_at

    def in_turn(self, ready: list[int]) -> list[int]:
        """Return these sockets, those first that were left unread, which are forgotten."""
        if self.unread:
            ready.sort(key=lambda fd: fd not in self.unread)
            self.unread.clear()
        return ready

    def batch_messages(self, most: int) -> int:
        """Return how many messages (segment trains) the next batch may have, up to `most`."""
        now = time.monotonic()
        return min(most, max(self.incoming.room(now, item_bytes=SUPER_BYTES, item_packets=MAX_TRAIN_PACKETS), 1))

    def charge_batch(self, batch: RxBatch, *, now: float) -> None:
        """Charge what was read; count what had to wait, and mark what waited for long."""
        incoming, waited = self.incoming, 0
        packets, size_bytes = len(batch.controls), self._header_bytes * len(batch.controls)
        for data, _, received_at in batch.controls:
            size_bytes += len(data)
            waited += received_at < incoming.ready_at
        for datagram in batch.datagrams:
            packets += datagram.count
            size_bytes += datagram.payload_bytes + datagram.count * self._overhead_bytes
            if datagram.received_at < incoming.ready_at:
                waited += datagram.count
                datagram.ecn_ce = datagram.ecn_ce or now - datagram.received_at > MARK_AFTER_S
        if waited:
            incoming.count_waited(waited)
        incoming.charge(size_bytes, packets=packets, now=now)

    def poll_transmit(self, core: EndpointCore, *, data_only: bool, now: float) -> Burst | Datagram | None:
        """Return the next thing that the core sends within the outgoing allowance, and charge it."""
        outgoing = self.outgoing
        room = outgoing.room(now, item_bytes=self._packet_bytes)
        out = core.poll_transmit(now, data_only=data_only, most_packets=min(room, MAX_BURST_PACKETS))
        if out is None:
            self._is_behind = core.holds_data
            self._send_at = outgoing.ready_at if self._is_behind else None
        elif isinstance(out, Datagram):
            outgoing.charge(len(out.data) + self._header_bytes, packets=1, now=now)
        else:
            if self._is_behind:
                outgoing.count_waited(out.count)
            outgoing.charge(out.carried_bytes + out.count * self._overhead_bytes, packets=out.count, now=now)
        return out

    def wake_at(self, at: float | None, *, reads: bool, sends: bool) -> float | None:
        """Return when the next turn is due: timeouts wait for the incoming allowance, held data for the outgoing."""
        if not reads:
            at = self.incoming.ready_at
        if self._send_at is not None and sends:
            at = self._send_at if at is None else min(at, self._send_at)
        return at

    @property
    def exceeded(self) -> AllowanceExceeded:
        """What had to wait."""
        incoming, outgoing = self.incoming, self.outgoing
        packets = incoming.packets_exceeded + outgoing.packets_exceeded
        return AllowanceExceeded(incoming.bandwidth_exceeded, outgoing.bandwidth_exceeded, packets)
