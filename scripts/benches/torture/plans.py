"""The parts of a scenario: network, endpoints, senders, receiver, attackers and faults.

Plain data in a form for JSON: a worker process reads the scenario from a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
SLOTS: Final = 16
"""Slots of a receive queue; its region needs a chunk for each (see `EndpointConfig`)."""


class Net(StrEnum):
    LOOPBACK = "loopback"
    ROUTED = "routed"
    """Namespaces around one router, each link with an MTU and offloads of its own."""
    RELAY = "relay"
    """Two leaves and two spines with links that lose, delay, duplicate, reorder and corrupt."""


class FaultKind(StrEnum):
    """A fault that the controller injects into a process or a link."""

    KILL = "kill"
    """SIGKILL; the next incarnation starts after `seconds`."""
    STOP = "stop"
    """SIGSTOP, and SIGCONT after `seconds`."""
    MTU = "mtu"
    """The link of a host changes to `value`, and back after `seconds`."""
    FLAP = "flap"
    """The link of a host fails and loses its carrier."""
    BLACKHOLE = "blackhole"
    """The link of a host loses everything and keeps its carrier."""


class RequestKind(StrEnum):
    SEND = "send"
    BATCH = "batch"
    WRITE = "write"
    READ = "read"
    LENT = "lent"
    """A send from a region of its own, which the sender tries to close while the send is in flight."""


@dataclass(frozen=True, slots=True)
class EndpointPlan:
    datagram_bytes: int = 8972
    paths: int = 4
    window_packets: int = 4096
    receive_window_bytes: int = 8 * MIB
    max_message_bytes: int = 4 * MIB
    chunk_bytes: int = 256 * KIB
    region_bytes: int = 32 * MIB
    request_timeout_s: float = 4.0
    unresponsive_after_s: float = 1.0
    rnr_retry: int = 7
    busy_poll: bool = False
    compiled: bool = False
    uvloop: bool = True
    gso: bool = True
    gro: bool = True
    first_psn: int = 0
    """First PSN in both directions; the same for all endpoints of a scenario."""
    first_message: int = 0
    first_sequence: int = 0
    security: str = "keys"
    """`keys`, `psk` or `plain`; the same for all endpoints of a scenario."""
    clock_wraps_after_s: float | None = None
    """Time until the monotonic clock in microseconds wraps at 32 bits, in a time namespace; None: no wrap."""


@dataclass(frozen=True, slots=True)
class SenderPlan:
    endpoint: EndpointPlan
    weights: dict[RequestKind, float]
    longest_bytes: int
    outstanding: int
    """Maximum number of outstanding requests."""
    small: float
    """Fraction of the messages of at most one packet."""
    cancelled: float = 0.0
    flawed: float = 0.0
    """Fraction of writes and reads with a wrong key or range."""
    pause_s: float = 0.0
    """Maximum pause after each request."""
    reconnect_after_s: float | None = None
    """Time after which the sender closes its peer and opens another."""
    drains: bool = True
    """Whether the sender waits for its requests before it closes a peer."""
    giant_bytes: int = 0
    """Length of one additional write; 0: none."""


@dataclass(frozen=True, slots=True)
class ReceiverPlan:
    endpoint: EndpointPlan
    pause_s: float = 0.0
    """Maximum pause before each message."""
    hold_s: float = 0.0
    """Maximum time that a message is held; it is checked again before it is returned."""
    hold_bytes: int = 0
    returns: str = "release"
    """How memory is returned: `release` or `tokens`."""
    bound: tuple[int, ...] = ()
    """Senders whose payload is steered to a bound region."""
    unbind_at_s: float | None = None
    replies: float = 0.0
    """Fraction of the messages that get a reply."""
    withdraw_at_s: dict[int, float] = field(default_factory=dict)
    """Sender -> time at which its write target is deregistered."""
    close_at_s: dict[int, float] = field(default_factory=dict)
    """Sender -> time at which the receiver closes its peer."""


@dataclass(frozen=True, slots=True)
class TimedFault:
    """A fault and its time; `worker` is the number of a sender, or 0 for the receiver."""

    at_s: float
    what: FaultKind
    worker: int
    seconds: float
    value: int = 0


@dataclass(frozen=True, slots=True)
class AttackerPlan:
    """A process that sends packets that no conforming endpoint sends."""

    packets_per_s: int
    trains: float
    """Fraction of the packets that are sent in GSO trains."""
    kinds: dict[str, float]
    seconds: float
    first_psn: int = 0
    """First PSN of all endpoints of the scenario."""
    security: str = "keys"
    """As that of the endpoints, which let it in: `keys`, `psk` or `plain`."""
    slices: int = 0
    """How often it sends what `packets_per_s` and `seconds` make; 0: once. Before each slice it makes all packets, and
    is silent for as long as the slice takes; when all are sent, the senders finish."""


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    net: Net
    mtus: dict[int, int] = field(default_factory=dict)
    """Host (0: the receiver's) -> MTU of its link."""
    offloads: dict[int, bool] = field(default_factory=dict)
    """Host -> whether GSO and GRO are on."""
    shape: dict[str, str | int] = field(default_factory=dict)
    """RELAY: netem arguments of every link between switches."""


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """File transfers by FileSender and FileReceiver, instead of messages."""

    sizes: tuple[int, ...]
    cancel_after_s: float | None = None
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class TortureScenario:
    seed: int
    seconds: float
    network: NetworkPlan
    receiver: ReceiverPlan
    senders: tuple[SenderPlan, ...]
    attackers: tuple[AttackerPlan, ...] = ()
    events: tuple[TimedFault, ...] = ()
    files: FilesPlan | None = None

    @property
    def fault_free(self) -> bool:
        """Whether every request must succeed that is neither cancelled nor flawed.

        The receiver must have memory for the windows of all senders, otherwise requests may time out.
        """
        receiver, endpoint = self.receiver, self.receiver.endpoint
        pinned_bytes = 2 * endpoint.receive_window_bytes * len(self.senders) + (SLOTS + 2) * endpoint.chunk_bytes
        if endpoint.region_bytes < pinned_bytes + endpoint.max_message_bytes + SLOTS * 64 * KIB:
            return False
        external_faults = self.events or self.attackers or self.network.net is Net.RELAY
        prompt = not receiver.pause_s and not receiver.hold_s
        return (
            not external_faults and prompt and not receiver.close_at_s and not receiver.withdraw_at_s and not self.files
        )

    def incarnations(self, worker: int) -> int:
        """Return the number of incarnations of a sender, or of the receiver (0)."""
        return 1 + sum(event.what is FaultKind.KILL and event.worker == worker for event in self.events)

    def describe(self) -> str:
        sizes = ",".join(str(sender.endpoint.datagram_bytes) for sender in self.senders)
        parts = [f"{self.network.net}", f"datagrams {sizes} to {self.receiver.endpoint.datagram_bytes}"]
        parts += [f"{event.what} {event.worker or 'receiver'}" for event in self.events]
        parts += [f"attackers {'+'.join(attacker.kinds)}" for attacker in self.attackers]
        parts += ["files"] if self.files else []
        parts += [self.receiver.endpoint.security]
        parts += ["compiled"] if self.receiver.endpoint.compiled else []
        return ", ".join(parts)
