"""The constants of the protocol that a user may set, each with its unit and the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass

from srd.proto.errors import UsageError
from srd.proto.send.flow_control import RNR_FOR_EVER
from srd.proto.wire.control import MIN_PEER_WINDOW_PACKETS
from srd.proto.wire.data import MAX_DATAGRAM_BYTES

MAX_MESSAGE_BYTES = 1 << 30
"""EFA's `max_rdma_size` is about 1 GB. A length has 32 bits."""

MAX_PATHS = 64
"""What SRD itself uses: AWS's HPC blog says 64 at a time, for memory reasons."""

MAX_PATH_NUMBERS = 128
"""Numbers that paths may have: those at home (`MAX_PATHS` at most), and the reserve that stands in for them."""


@dataclass(frozen=True, slots=True)
class ProtocolConfig:
    """Settings of one endpoint's protocol core. Times are in seconds."""

    paths: int = 32
    """Local source ports that a peer's packets are sprayed over. With 4 equal-cost links the chance that random hashing
    leaves one link unused is 4 * 0.75^32 = 0.04 %; at 8 ports it would be 40 %. Others stand in for those that fall
    silent (see the module `paths`)."""

    window_packets: int = 32768
    """Packets from the lowest unacknowledged one to the highest that may be sent; the other end is told, and the lesser
    of both ends' counts. At MTU 9000 it is 290 MB, twice the bandwidth-delay product of 10 Gbit/s and 100 ms. It is the
    most that a sender uses: it needs `pacing.MIN_SPAN_PACKETS` or four bandwidth-delay products, and never has more
    than the bitmap of an ACK has bits for (35,000 packets at MTU 9000, 5,900 at 1500)."""

    min_inflight_limit_bytes: int = 8 << 20
    """Bytes on the way to a peer beyond which no burst is sent, whatever the window, unless twice what it delivers in
    its smallest round trip is more (see `pacing.Ceiling`); peers that are at work share it. Twice the bandwidth-delay
    product of 25 Gbit/s and 1 ms, and little enough for the socket of a receiver that is held up, where all of it may
    wait, twice if it is sent again. Without a limit thousands of packets were dropped there, and small messages waited
    behind what was queued: beside a bulk flow p99.9 was 10 to 14 ms, with it 5 to 8; half of it slows bulk down (25 to
    20 Gbit/s)."""

    receive_window_bytes: int = 32 << 20
    """Message bytes a peer may have outstanding that the application has not released. Half the default region,
    because chunks are pinned whole."""

    receive_window_messages: int = 16_384
    """Messages and writes with immediate that a peer may have outstanding, likewise, as each costs memory besides its
    bytes: about 400 B, so 7 MB a peer at most. At 1.7 million messages a second, what one sender reaches, it is 10 ms
    of them: a round trip of 1 ms and an application that is held up for 8, as grants come in eighths."""

    max_message_bytes: int = 16 << 20
    """Longest send accepted, to 1 GiB. It must fit into the receive window, since a send starts only when all of it has
    been granted; half of it leaves room for the next. Writes and reads land in registered memory: they need no window,
    and have at most 1 GiB whatever is set here."""

    rnr_retry: int = 7
    """How often a send is tried again when the receiver was not ready (has granted no memory for it): 0 to 7, where 7
    means for ever, which is what libfabric's EFA provider and NIXL set. Such a send still ends with its bound."""

    rnr_timer_s: float = 0.001
    """Least time between two of these tries, doubled each time up to `probe_after_s`. InfiniBand's default is 0.64 ms;
    less than a busy application takes to release a message is of no use."""

    request_timeout_s: float = 300.0
    """Every request ends within this time, in success or in a status; `inf` waits for ever. The longest message (1 GiB)
    takes it at 29 Mbit/s."""

    reassembly_timeout_s: float = 30.0
    """An incomplete send of which nothing more arrives for so long is given up by its receiver, as it is when it has
    been incomplete for `request_timeout_s`: memory comes back from a sender that never goes on. What of it the receiver
    refused for want of memory counts, too: who had none for so long is not ready. Linux keeps the fragments of an IP
    packet as long. An honest sender goes on within a few round trips, or its peer ends within a second or so."""

    stalled_after_s: float = 1.0
    """The same while memory is scarce, but not counting the time in which the receiver had no memory for the sender.
    A sender that was refused comes again within `probe_after_s`, four times as often, and one that lives repeats what
    was lost within some ten milliseconds: `unresponsive_after_s` is as long for the same reason."""

    controller: str = "majority-delay"
    """Name in `controllers.CONTROLLERS`."""

    initial_window_packets: int = 16
    """First congestion window: RFC 6928 sends 10; Swift's simulator starts at 12; rounded up to a power of two."""

    min_rto_s: float = 0.01
    """Least patience of a path's retransmission timeout beyond the smoothed round trip. On a busy host a process waits
    for its turn: 3 to 12 ms were common with three busy processes on two cores, and every packet sent again was one
    that had arrived."""

    initial_rtt_s: float = 0.05
    """Round trip assumed before the first sample: the handshake's retry interval."""

    ack_delay_s: float = 0.0005
    """Longest that an ack waits for company: a quarter of a round trip of 2 ms. The other end is told
    (`ack_delay_us`)."""

    pacing_depth_s: float = 0.001
    """What the pacer lets go at once, in time at the pace: half a round trip of 2 ms. Less would wake an interpreter
    for every burst."""

    delay_target_rtts: float = 0.5
    """Queueing delay that the congestion controller accepts of a large window, in base round trips (UET's NSCC: 0.75 to
    1). A buffer is rarely more than one, and must not fill before the delay speaks. Small windows are let have more."""

    min_delay_target_s: float = 0.001
    """Floor of the queueing delay that the congestion controller accepts: about the scheduling jitter of an
    interpreter, so that the host's noise is not taken for a queue. Where that is measured to be more, as much again is
    added at most."""

    endpoint_delay_target_s: float = 0.004
    """Time that packets may wait inside the receiving host before the sender slows down (Swift's second window):
    a few turns of a busy event loop."""

    max_peers: int = 4096
    """Peers that this endpoint may have when another one asks to be its peer; beyond, it is refused. An idle peer takes
    about 7 kB, and the processor time of a sign of life every `IDLE_PROBE_S` times as many seconds: 30 MB and a few per
    cent of a core. Peers that this endpoint opens itself count, and are not refused."""

    max_peers_per_address: int = 1024
    """The same of one IP address: a quarter of all, so that a single host cannot take all places. An address of IPv6
    counts by itself, though a host may have many."""

    max_unaccepted_peers: int = 1024
    """The same of those that the application has not accepted yet, as `listen`'s backlog. More than come in one turn of
    an event loop; Linux' own limit (`somaxconn`) is 4096."""

    handshake_timeout_s: float = 1.0
    """A peer that never answered is reported unreachable after this long."""

    probe_after_s: float = 0.25
    """Silence after which a peer is asked for a sign of life, and asked again."""

    unresponsive_after_s: float = 1.0
    """Silence after which a peer that was asked at least three times is reported unresponsive."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, naming value and range."""
        if not 1 <= self.paths <= MAX_PATHS:
            raise UsageError(f"paths: {self.paths} is not between 1 and {MAX_PATHS}")
        if not MIN_PEER_WINDOW_PACKETS <= self.window_packets <= 1 << 16:
            raise UsageError(
                f"window_packets: {self.window_packets} is not between {MIN_PEER_WINDOW_PACKETS} and 65536"
            )
        if (limit := self.min_inflight_limit_bytes) < MAX_DATAGRAM_BYTES:
            raise UsageError(f"min_inflight_limit_bytes: {limit} is less than {MAX_DATAGRAM_BYTES}")
        if not 1 <= self.receive_window_messages < 1 << 32:
            raise UsageError(f"receive_window_messages: {self.receive_window_messages} is not between 1 and 2^32 - 1")
        longest = min(self.receive_window_bytes, MAX_MESSAGE_BYTES)
        if not 1 <= self.max_message_bytes <= longest:
            raise UsageError(
                f"max_message_bytes: {self.max_message_bytes} is not between 1 and {longest} "
                "(the receive window, or 1 GiB if that is less)"
            )
        for name, value in (
            ("max_peers", self.max_peers),
            ("max_peers_per_address", self.max_peers_per_address),
            ("max_unaccepted_peers", self.max_unaccepted_peers),
        ):
            if value < 1:
                raise UsageError(f"{name}: {value} is less than 1")
        if not 0 <= self.rnr_retry <= RNR_FOR_EVER:
            raise UsageError(f"rnr_retry: {self.rnr_retry} is not between 0 and {RNR_FOR_EVER} (for ever)")
        if not self.rnr_timer_s > 0:
            raise UsageError(f"rnr_timer_s: {self.rnr_timer_s} is not more than 0")
        for name in ("request_timeout_s", "reassembly_timeout_s", "stalled_after_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}: {getattr(self, name)} is not more than 0")
