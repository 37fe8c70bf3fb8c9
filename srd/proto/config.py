"""The settings of the protocol, each with its unit and the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from srd.proto.base.errors import UsageError
from srd.proto.controller import Controller, ControllerFactory
from srd.proto.wire.control import MIN_PEER_WINDOW_PACKETS
from srd.proto.wire.data import MAX_DATAGRAM_BYTES

MAX_MESSAGE_BYTES: Final = 1 << 30
"""EFA's `max_rdma_size` is about 1 GB. A length has 32 bits."""

CONTROLLER_METHODS: Final = (
    "on_ack", "on_sample", "on_loss", "on_all_paths_timeout", "on_spurious_loss", "pacing_gain",
)  # fmt: skip
"""What a subclass of Controller has to define."""

MAX_PATHS: Final = 64
"""What SRD itself uses: 64 at a time, for memory reasons (AWS's HPC blog)."""

MAX_PATH_NUMBERS: Final = 128
"""Path numbers: the primary paths (`MAX_PATHS` at most), and the reserve of standby paths."""


RNR_FOR_EVER: Final = 7
"""The `rnr_retry` without limit (InfiniBand's and EFA's)."""

MAX_FLOWS: Final = 256
"""Flows of one peer that take turns (see `send.queue`): as many as an emulated card has queue pairs."""


@dataclass(frozen=True, slots=True)
class ProtocolConfig:
    """Settings of one endpoint's protocol core. Times are in seconds."""

    paths: int = 32
    """Local source ports that a peer's packets are sprayed over. With 4 equal-cost links the chance that random hashing
    leaves one link unused is 4 * 0.75^32 = 0.04 %; at 8 ports it would be 40 %. Standby paths replace those that do not
    answer (see `paths.table`)."""

    window_packets: int = 32768
    """Packets from the lowest unacknowledged one to the highest that may be sent. It is sent to the other end, and the
    smaller of both ends' values applies. It is an upper bound: a sender uses at most the greater of `MIN_SPAN_PACKETS`
    and four bandwidth-delay products (see `congestion.limits`), and never more than the bitmap of an ACK has bits
    for."""

    min_inflight_limit_bytes: int = 8 << 20
    """Bytes in flight to a peer beyond which no burst is sent, whatever the window, unless twice the bandwidth-delay
    product is more (see `InflightLimit` in `congestion.limits`); peers with packets in flight share it. Twice the
    bandwidth-delay product of 25 Gbit/s and 1 ms, and little enough for the receiver's socket, where all of it may
    wait, twice if it is retransmitted. More overflows the socket and delays small messages behind the queue; less slows
    bulk transfers down."""

    receive_window_bytes: int = 32 << 20
    """Message bytes that a peer may have outstanding and the application has not released. Half the default region,
    because chunks are pinned whole."""

    receive_window_messages: int = 16_384
    """Messages and writes with immediate that a peer may have outstanding, likewise, since each costs memory besides
    its bytes (about 400 B). It covers a round trip of 1 ms and an application that is delayed by 8 ms, since grants
    come in eighths."""

    max_message_bytes: int = 16 << 20
    """Longest send accepted, up to 1 GiB. It must fit into the receive window, since a send starts only when all of it
    is granted; half of the window leaves room for the next. Writes and reads land in registered memory: they need no
    window, and have at most 1 GiB whatever is set here."""

    rnr_retry: int = 7
    """How often a send is retried when the receiver was not ready (has granted no memory for it): 0 to 7, where 7 means
    without limit, which is what libfabric's EFA provider and NIXL set. Such a send still ends by
    `request_timeout_s`."""

    rnr_timer_s: float = 0.001
    """Smallest interval between two of these retries, doubled each time up to `probe_after_s`. InfiniBand's default is
    0.64 ms; less than a busy application takes to release a message is useless."""

    request_timeout_s: float = 300.0
    """Every request ends within this time, in success or with a status; `inf` means no limit. The longest message (1
    GiB) takes it at 29 Mbit/s."""

    reassembly_timeout_s: float = 30.0
    """An incomplete send, or write with immediate, of which nothing more arrives for this long is discarded by its
    receiver, as is one that has been incomplete for `request_timeout_s`: a sender that never continues cannot keep the
    memory, or a card's receive request. Time in which the receiver refused it for lack of memory counts, too: a
    receiver without memory for that long is not ready. Linux keeps the fragments of an IP packet as long. A live sender
    continues within a few round trips, or its peer ends within about a second."""

    stalled_after_s: float = 1.0
    """The same while memory is low, not counting the time in which the receiver had no memory for the sender. A sender
    that was refused retries within `probe_after_s`, four times as often, and a live sender retransmits within some ten
    milliseconds; `unresponsive_after_s` has the same length for the same reason."""

    controller: ControllerFactory | None = None
    """The class of the congestion controller, a subclass of `controller.Controller`, or a function that makes one
    for each peer; None: `congestion.delay.MajorityDelay`."""

    initial_window_packets: int = 16
    """Initial congestion window: RFC 6928 sends 10; Swift's simulator starts at 12; rounded up to a power of two."""

    incast_packets: int = 128
    """Full packets that may be on their way to this endpoint at once without harm, as in the buffer of a switch port
    (1 MB). With more peers than that, each of them sends longer messages only in its turn (see `recv.pulls`), since
    their first packets alone would not fit."""

    min_rto_s: float = 0.01
    """Smallest margin of a path's retransmission timeout over the smoothed round trip. On a busy host a process waits
    to be scheduled, and a shorter margin causes spurious retransmissions."""

    initial_rtt_s: float = 0.05
    """Round trip assumed before the first sample: the handshake's retry interval."""

    ack_delay_s: float = 0.0005
    """Longest time that an ack is delayed to acknowledge more packets: a quarter of a round trip of 2 ms. The delay is
    reported to the other end (`ack_delay_us`)."""

    pacing_depth_s: float = 0.001
    """Depth of the pacer's bucket, as time at the pacing rate: half a round trip of 2 ms. Less would wake an
    interpreter for every burst."""

    delay_target_rtts: float = 0.5
    """Target of the queueing delay for a large window, in base round trips (UET's NSCC: 0.75 to 1). A buffer is rarely
    larger than one, and must not overflow before the delay reaches the target. Small windows have a higher target."""

    min_delay_target_s: float = 0.001
    """Floor of the target of the queueing delay: about the scheduling jitter of an interpreter, so that host noise is
    not taken for a queue. Where the measured jitter is larger, the target grows by at most as much again."""

    endpoint_delay_target_s: float = 0.004
    """Ack delay in the receiving host beyond which the sender slows down (Swift's second window): a few iterations of a
    busy event loop."""

    max_peers: int = 4096
    """Number of peers beyond which this endpoint refuses incoming peers. An idle peer takes about 7 kB, and the CPU
    time of a keepalive probe every `IDLE_PROBE_S` times the number of peers: 30 MB and a few per cent of a core. Peers
    that this endpoint opens itself count, and are not refused."""

    max_peers_per_address: int = 1024
    """The same for one IP address: a quarter of all, so that a single host cannot take all slots. Each IPv6 address
    counts by itself, though a host may have many."""

    max_unaccepted_peers: int = 4096
    """The same for peers that the application has not accepted yet, as `listen`'s backlog: Linux' own limit
    (`somaxconn`). Four times what one IP address may have, so that a single host cannot take all of these either."""

    handshake_timeout_s: float = 10.0
    """A peer that never answered is reported unreachable after this time. A handshake takes two round trips: 1.2 s over
    a satellite, 2.4 s behind full buffers; and a few losses must not end it. As long as a cookie is valid at least."""

    probe_after_s: float = 0.25
    """Time without a packet after which a peer is sent a keepalive probe, and interval of further probes; more on a
    path with a long round trip (see `endpoint.peer`)."""

    unresponsive_after_s: float = 1.0
    """Time without a packet after which a peer that left at least three keepalive probes unanswered is reported
    unresponsive; more on a path with a long round trip (see `endpoint.peer`)."""

    nat_keepalive_s: float = 15.0
    """Interval in which a PROBE leaves from each path, where a NAT is between this end and a peer that it has opened:
    it keeps the mappings of the NAT. A NAT has to keep a mapping for 2 minutes (RFC 4787), but many keep it for 30 s,
    as Linux does until both ends have sent. Half of that, so that one may be lost; less is not recommended (RFC 8085,
    section 3.5; RFC 8445, section 11, has 15 s too)."""

    may_move: bool = True
    """Whether peers may go on at another address of their host (see `paths.validation`). Where an address says who a
    peer is, or where packets may go, it must not change: a network card's mapping has the addresses of the others.
    False: such a peer ends. What a NAT in front of the peer does is not affected."""

    def __post_init__(self) -> None:
        """Reject invalid settings, naming value and range."""
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
            ("incast_packets", self.incast_packets),
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
        for name in ("request_timeout_s", "reassembly_timeout_s", "stalled_after_s", "nat_keepalive_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}: {getattr(self, name)} is not more than 0")
        self._check_controller(self.controller)

    def _check_controller(self, controller: object) -> None:
        """Make a controller of a class once, so that an unusable one fails here and not at the first peer."""
        if controller is None:
            return
        if not callable(controller):
            raise UsageError(f"controller: {controller!r} is no class; give a subclass of Controller, not its name")
        if not isinstance(controller, type):
            return
        if not issubclass(controller, Controller):
            raise UsageError(f"controller: {controller.__name__} is no subclass of srd.Controller")
        # Not left to abc, which does not look at a subclass of a compiled class.
        lacking = [name for name in CONTROLLER_METHODS if getattr(controller, name) is getattr(Controller, name)]
        if lacking:
            raise UsageError(f"controller: {controller.__name__} lacks {', '.join(lacking)}")
        factory: ControllerFactory = controller
        try:
            factory(self, packet_bytes=MAX_DATAGRAM_BYTES)
        except TypeError as error:
            raise UsageError(f"controller: {controller.__name__} cannot be made: {error}") from error
