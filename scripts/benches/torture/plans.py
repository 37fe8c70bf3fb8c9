"""What a scenario is made of: a network, endpoints and how each runs, who sends what, and which faults happen when.

Plain data that JSON can carry: a worker process reads its part from a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
SLOTS: Final = 16
"""Of a receive queue: its region needs a chunk for each (see `EndpointConfig`)."""


class Net(StrEnum):
    """What lies between the endpoints."""

    LOOPBACK = "loopback"
    ROUTED = "routed"
    """Namespaces around one router, each link with an MTU and offloads of its own."""
    RELAY = "relay"
    """Two leaves and two spines, whose links lose, delay, duplicate, reorder and corrupt."""


class FaultKind(StrEnum):
    """What happens to a process or a link from outside."""

    KILL = "kill"
    """SIGKILL; another incarnation begins after `seconds`."""
    STOP = "stop"
    """SIGSTOP, and SIGCONT after `seconds`."""
    MTU = "mtu"
    """The link of a host changes to `value`, and back after `seconds`."""
    FLAP = "flap"
    """The link of a host fails with its carrier."""
    BLACKHOLE = "blackhole"
    """The link of a host loses everything, silently."""


class Kind(StrEnum):
    """What a worker posts."""

    SEND = "send"
    BATCH = "batch"
    WRITE = "write"
    READ = "read"
    LENT = "lent"
    """A send from a region of its own, which its owner tries to close during the send."""


@dataclass(frozen=True, slots=True)
class EndpointPlan:
    """How an endpoint is set up, and the process that it runs in."""

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
    """Both ends' PSNs begin here; the same for all endpoints of a scenario."""
    first_message: int = 0
    first_sequence: int = 0
    clock_wraps_after_s: float | None = None
    """The microseconds of the monotonic clock wrap at 32 bits so long after the process's start (a time namespace)."""


@dataclass(frozen=True, slots=True)
class SenderPlan:
    """What one sending process does."""

    endpoint: EndpointPlan
    weights: dict[Kind, float]
    longest_bytes: int
    outstanding: int
    """Requests at a time."""
    small: float
    """Share of the messages that are a packet or less."""
    cancelled: float = 0.0
    flawed: float = 0.0
    """Share of writes and reads with a wrong key or range."""
    pause_s: float = 0.0
    """After each request, up to this long."""
    leaves_after_s: float | None = None
    """Closes its peer every so often, and opens another."""
    drains: bool = True
    """Whether it waits for its requests before it leaves."""
    giant_bytes: int = 0
    """Of one write, and one read, of this length."""


@dataclass(frozen=True, slots=True)
class ReceiverPlan:
    """What the process does that all the others send to."""

    endpoint: EndpointPlan
    pause_s: float = 0.0
    """Before each message, up to this long."""
    hold_s: float = 0.0
    """Messages are kept up to this long, and checked again before they are returned."""
    hold_bytes: int = 0
    returns: str = "release"
    """How: `release`, `tokens` or `ring`."""
    bound: tuple[int, ...] = ()
    """Senders whose payload is steered to a bound region."""
    unbind_at_s: float | None = None
    replies: float = 0.0
    """Share of the messages that are answered by another."""
    withdraw_at_s: dict[int, float] = field(default_factory=dict)
    """Sender -> when the memory that it writes to is deregistered."""
    close_at_s: dict[int, float] = field(default_factory=dict)
    """Sender -> when its peer is closed by this end."""


@dataclass(frozen=True, slots=True)
class Event:
    """A trouble, at its time; `who` is a sender's number, 0 the receiver's."""

    at_s: float
    what: FaultKind
    who: int
    seconds: float
    value: int = 0


@dataclass(frozen=True, slots=True)
class AttackerPlan:
    """A process that sends what no endpoint would."""

    packets_per_s: int
    trains: float
    """Share of the packets that come in GSO trains."""
    kinds: dict[str, float]
    seconds: float
    first_psn: int = 0
    """As of all endpoints of the scenario."""


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """What lies between, and how it treats packets."""

    net: Net
    mtus: dict[int, int] = field(default_factory=dict)
    """Host (0: the receiver's) -> MTU of its link."""
    offloads: dict[int, bool] = field(default_factory=dict)
    """Host -> whether GSO and GRO are on."""
    shape: dict[str, str | int] = field(default_factory=dict)
    """RELAY: of every link between switches, in tc's words."""


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """Instead of messages: files by FileSender and FileReceiver."""

    sizes: tuple[int, ...]
    cancel_after_s: float | None = None
    mapped: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a seed stands for."""

    seed: int
    seconds: float
    network: NetworkPlan
    receiver: ReceiverPlan
    senders: tuple[SenderPlan, ...]
    attackers: tuple[AttackerPlan, ...] = ()
    events: tuple[Event, ...] = ()
    files: FilesPlan | None = None

    @property
    def calm(self) -> bool:
        """Whether nothing happens that could make a request fail that was not cancelled or wrong itself.

        Lack of memory excepted: where the senders' windows together are more than the receiver
        has, requests may time out.
        """
        receiver, endpoint = self.receiver, self.receiver.endpoint
        pinned_bytes = 2 * endpoint.receive_window_bytes * len(self.senders) + (SLOTS + 2) * endpoint.chunk_bytes
        if endpoint.region_bytes < pinned_bytes + endpoint.max_message_bytes + SLOTS * 64 * KIB:
            return False
        fault_free = not self.events and not self.attackers and self.network.net is not Net.RELAY
        prompt = not receiver.pause_s and not receiver.hold_s
        return fault_free and prompt and not receiver.close_at_s and not receiver.withdraw_at_s and not self.files

    def incarnations(self, who: int) -> int:
        """Return how many processes there will have been of a sender, or of the receiver (0)."""
        return 1 + sum(event.what is FaultKind.KILL and event.who == who for event in self.events)

    def describe(self) -> str:
        """Return one line: what is special."""
        sizes = ",".join(str(sender.endpoint.datagram_bytes) for sender in self.senders)
        parts = [f"{self.network.net}", f"datagrams {sizes} to {self.receiver.endpoint.datagram_bytes}"]
        parts += [f"{event.what} {event.who or 'receiver'}" for event in self.events]
        parts += [f"attackers {'+'.join(attacker.kinds)}" for attacker in self.attackers]
        parts += ["files"] if self.files else []
        parts += ["compiled"] if self.receiver.endpoint.compiled else []
        return ", ".join(parts)
