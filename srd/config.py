"""Settings of an endpoint on real sockets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from srd.io.rx import SLOTS
from srd.io.rx_buffers import SUPER_BYTES, scratch_bytes
from srd.proto.config import ProtocolConfig
from srd.proto.errors import UsageError
from srd.proto.wire.data import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES

MAX_ADAPTIVE_POLL_S = 0.1
"""Whoever wants to wait longer without sleeping wants `busy_poll`."""


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """One endpoint."""

    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    """The protocol core's settings."""

    receive_region_bytes: int = 80 << 20
    """Memory that received messages land in: twice the receive window, as chunks are pinned whole, and the slots'
    own chunks."""

    chunk_bytes: int = 512 << 10
    """The piece of the region that is reused as a whole. Small enough that a held frag pins little, large enough that
    a super-datagram's worth left unused at its end (64 KiB) does not matter."""

    datagram_bytes: int = 8972
    """Largest datagram received: MTU 9000 less IPv4's and UDP's headers. Larger ones save little."""

    header_split: bool = True
    """Whether payload is parted from headers as it is received. Without it every byte is copied once by this process,
    and no region can be bound: to see what it is worth, or to rule it out."""

    adaptive_poll_s: float = 0.0003
    """How long the event loop may stay awake between messages that follow each other as closely, in seconds; 0: it
    sleeps whenever there is nothing to do. Several times what being put to sleep and woken costs a virtual processor
    (30 to 50 us, four times a round trip), which it saves. Not while a stream flows, nor where others want the
    processor. Among such messages an answer goes before the acks, with `busy_poll`, too."""

    busy_poll: bool = False
    """Whether to spin on the sockets instead of sleeping until one has something, as an EFA application polls its
    completion queue: it costs a processor, and saves what being woken takes. Turns are not spaced out then."""

    close_timeout_s: float = 2.0
    """How long `Peer.close` and `Endpoint.close` wait for what was posted, in seconds: then it ends with FLUSHED, as a
    receiver that gives no credit could hold a closing program up for as long as a request may take. Twice what a peer
    that is gone takes to be found silent, so that an orderly end has its time. Await what must arrive."""

    def __post_init__(self) -> None:
        """Refuse a region that cannot hold what is promised to peers."""
        if not 2 * SUPER_BYTES <= self.chunk_bytes <= self.receive_region_bytes // 16:
            raise UsageError(
                f"chunk_bytes: {self.chunk_bytes} is not between {2 * SUPER_BYTES} (two GRO series) "
                f"and a sixteenth of receive_region_bytes ({self.receive_region_bytes // 16})"
            )
        if not MIN_DATAGRAM_BYTES <= self.datagram_bytes <= MAX_DATAGRAM_BYTES:
            raise UsageError(
                f"datagram_bytes: {self.datagram_bytes} is not between {MIN_DATAGRAM_BYTES} and {MAX_DATAGRAM_BYTES}"
            )
        if not 0 <= self.adaptive_poll_s <= MAX_ADAPTIVE_POLL_S:
            raise UsageError(
                f"adaptive_poll_s: {self.adaptive_poll_s} is not between 0 and {MAX_ADAPTIVE_POLL_S}; see busy_poll"
            )
        if not 0 <= self.close_timeout_s < math.inf:
            raise UsageError(f"close_timeout_s: {self.close_timeout_s} is no time to wait; give seconds, 0 or more")
        # A chunk for every slot, the slots' spare places, and twice the window, as chunks are pinned whole.
        slots = (SLOTS + 1) * self.chunk_bytes + scratch_bytes(SLOTS)
        least = slots + 2 * self.protocol.receive_window_bytes
        if self.receive_region_bytes < least:
            raise UsageError(
                f"receive_region_bytes: {self.receive_region_bytes} is less than {least}, which a receive_window_bytes "
                f"of {self.protocol.receive_window_bytes} and chunk_bytes of {self.chunk_bytes} need"
            )
