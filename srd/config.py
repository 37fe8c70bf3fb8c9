"""Settings of an endpoint on real sockets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from srd.io.allowance import Allowance
from srd.io.rx_buffers import SUPER_BYTES, scratch_bytes
from srd.io.rx_memory import SLOTS
from srd.proto.base.errors import UsageError
from srd.proto.config import ProtocolConfig
from srd.proto.wire.data import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES
from srd.secure.config import Keys, SecurityConfig
from srd.streams.wire import INITIAL_WINDOW_BYTES, MAX_AHEAD

MAX_ADAPTIVE_POLL_S = 0.1
"""Upper bound of `adaptive_poll_s`; to poll for longer, use `busy_poll`."""


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """Settings of one endpoint."""

    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    """The protocol core's settings."""

    receive_region_bytes: int = 80 << 20
    """Memory that received messages land in: twice the receive window, because a chunk is only reused as a whole, plus
    the slots' own chunks and scratch buffers."""

    chunk_bytes: int = 512 << 10
    """The unit of the region that is reused as a whole. Small enough that a held fragment pins little memory, large
    enough that the unused end of a chunk (up to a super-datagram, 64 KiB) does not matter."""

    datagram_bytes: int = 8972
    """Largest datagram received: MTU 9000 without the IPv4 and UDP headers. Larger ones gain little."""

    adaptive_poll_s: float = 0.0005
    """How long the event loop polls after a message that followed another within this time, in seconds; 0: it always
    sleeps when idle. Several times the cost of sleeping and waking up on a virtual CPU, which polling saves four times
    per round trip; and longer than an encrypted round trip with these four on a slow host, 0.3 ms, or polling would not
    begin again once it had ended. It does not poll during a stream, nor while other threads compete for the CPU."""

    security: SecurityConfig = field(default_factory=Keys)
    """How peers are encrypted and known: `Keys` (public keys, as with SSH), `Psk` (a symmetric key), `Plain` (neither).
    By default this user's key, and trust on first use. Both ends must have the same."""

    busy_poll: bool = False
    """Whether to poll the sockets continuously instead of sleeping, as an EFA application polls its completion queue.
    It uses a whole CPU and saves the wake-up latency. Turns are not coalesced then."""

    allowance: Allowance | None = None
    """How many bytes and packets per second are sent at most, and received, over all peers; None: no limit, since a
    host of one's own needs none. A network card gives each of its virtual functions an allowance."""

    stream_window_bytes: int = 2 << 20
    """Bytes that the other end of a stream may send before the application has read them, once it has accepted or
    opened the stream; 64 KiB to 1 GiB. It covers 20 Gbit/s over 0.8 ms. An application holds so much memory for each
    stream that it does not read."""

    close_timeout_s: float = 2.0
    """How long `Peer.close` and `Endpoint.close` wait for open requests, in seconds; then these end with FLUSHED.
    Otherwise a receiver that grants no credit could delay a closing program for as long as a request may take. It is
    twice the time after which an unresponsive peer is detected, which is enough for an orderly close. Await the
    requests whose delivery matters before closing."""

    def __post_init__(self) -> None:
        """Check the values. Raises UsageError, also for a region that cannot hold the receive window."""
        if not 2 * SUPER_BYTES <= self.chunk_bytes <= self.receive_region_bytes // 16:
            raise UsageError(
                f"chunk_bytes: {self.chunk_bytes} is not between {2 * SUPER_BYTES} (two GRO series) "
                f"and a sixteenth of receive_region_bytes ({self.receive_region_bytes // 16})"
            )
        if not MIN_DATAGRAM_BYTES <= self.datagram_bytes <= MAX_DATAGRAM_BYTES:
            raise UsageError(
                f"datagram_bytes: {self.datagram_bytes} is not between {MIN_DATAGRAM_BYTES} and {MAX_DATAGRAM_BYTES}"
            )
        if not INITIAL_WINDOW_BYTES <= self.stream_window_bytes <= MAX_AHEAD:
            raise UsageError(
                f"stream_window_bytes: {self.stream_window_bytes} is not between {INITIAL_WINDOW_BYTES} and {MAX_AHEAD}"
            )
        if not 0 <= self.adaptive_poll_s <= MAX_ADAPTIVE_POLL_S:
            raise UsageError(
                f"adaptive_poll_s: {self.adaptive_poll_s} is not between 0 and {MAX_ADAPTIVE_POLL_S}; see busy_poll"
            )
        if not 0 <= self.close_timeout_s < math.inf:
            raise UsageError(f"close_timeout_s: {self.close_timeout_s} is no time to wait; give seconds, 0 or more")
        # A chunk for every slot and one for copies, the scratch buffers, and twice the window, as chunks are pinned.
        slots = (SLOTS + 1) * self.chunk_bytes + scratch_bytes(SLOTS)
        least = slots + 2 * self.protocol.receive_window_bytes
        if self.receive_region_bytes < least:
            raise UsageError(
                f"receive_region_bytes: {self.receive_region_bytes} is less than {least}, which a receive_window_bytes "
                f"of {self.protocol.receive_window_bytes} and chunk_bytes of {self.chunk_bytes} need"
            )
