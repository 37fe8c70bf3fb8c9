"""The scenario of a seed: a small fabric, its conditions, the outages, and the messages.

Each kind of fault occurs in about half of the scenarios, so that all combinations occur, and its absence, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random
from typing import Final

from netns.netem.shape import Shape
from netns.topology.model import Topology, fully_meshed
from scripts.benches.chaos.target import READABLE_FROM, SPARE_BYTES
from srd.proto.config import ProtocolConfig

HOSTS: Final = ("h1", "h2")
POSTING_S: Final = 0.4
"""Messages are posted, and outages begin, within this time."""
FAULTS_END_S: Final = 2.0
"""Time at which the faults end; all repairs happen before."""
LONGEST_BYTES: Final = SPARE_BYTES
GAP_BYTES: Final = 16
"""Gap between the targets of messages, which detects slightly misplaced writes."""
BOUND_S: Final = 12.0
"""Time by which every request must have completed: 10 s after the last fault, where 1 s without packets ends a peer."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Faults of datagrams in addition to the links' shapes, as fractions of all."""

    duplicate: float = 0.0
    late: float = 0.0
    late_s: float = 0.0
    """Maximum additional delay of a late datagram."""
    flip: float = 0.0
    """Fraction of datagrams with one flipped bit."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A spine that drops everything for some time."""

    spine: str
    at_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Restart:
    """A process that restarts without its state."""

    host: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A host's registrations are withdrawn, and replaced by others."""

    host: str
    at_s: float


class MessageKind(Enum):
    SEND = auto()
    WRITE = auto()
    WRITE_WITH_IMMEDIATE = auto()
    READ = auto()


class Flaw(Enum):
    """The reason why a write or a read must be refused."""

    NONE = auto()
    KEY = auto()
    """Its key does not exist."""
    RANGE = auto()
    """Its range ends one byte after the registration."""


@dataclass(frozen=True, slots=True)
class ChaosMessage:
    """`length` bytes from `payload_offset` of the common noise."""

    host: str
    """The host that posts it."""
    at_s: float
    payload_offset: int
    length: int
    kind: MessageKind = MessageKind.SEND
    target_offset: int = 0
    """WRITE: offset in the remote registration; READ: in the local one. Targets do not overlap."""
    flaw: Flaw = Flaw.NONE
    cancel_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class ChaosScenario:
    seed: int
    topology: Topology
    config: ProtocolConfig
    conditions: Conditions
    outages: tuple[Outage, ...]
    restarts: tuple[Restart, ...]
    messages: tuple[ChaosMessage, ...]
    pool_packets: int
    """Size of a host's pool in packets."""
    release_s: float
    """Maximum delay until a delivered message is released."""
    withdrawals: tuple[Withdrawal, ...] = ()
    registered_bytes: int = 0
    """Size of the messages' targets."""


def scenario(seed: int, *, noise_bytes: int) -> ChaosScenario:
    """Return the scenario of a seed; messages lie within `noise_bytes`."""
    rng = Random(f"chaos/{seed}")  # noqa: S311 - reproducible, not secret

    def maybe(value: float) -> float:
        return value if rng.random() < 0.5 else 0.0

    shape = Shape(
        delay_us=rng.randint(10, 2000),
        jitter_us=maybe(rng.randint(1, 500)),
        loss_percent=maybe(round(rng.uniform(0, 30), 2)),
        rate_bps=round(maybe(rng.choice((100_000_000, 1_000_000_000)))),
        limit_packets=rng.randint(8, 200),
    )
    spines = rng.randint(1, 4)
    mtu = rng.choice((1280, 1500, 9000))
    window_bytes = rng.choice((16_384, 65_536, 1 << 20))
    messages = tuple(_messages(rng, longest=window_bytes, noise_bytes=noise_bytes))
    return ChaosScenario(
        seed=seed,
        topology=fully_meshed(leaves=2, spines=spines, hosts_per_leaf=1, mtu=mtu, shape=shape, name="chaos", seed=seed),
        config=replace(
            ProtocolConfig(),
            paths=rng.randint(1, 16),
            receive_window_bytes=window_bytes,
            max_message_bytes=window_bytes,
        ),
        conditions=Conditions(
            duplicate=maybe(rng.uniform(0, 0.1)),
            late=maybe(rng.uniform(0, 0.2)),
            late_s=rng.uniform(0, 0.005),
            flip=maybe(rng.uniform(0, 0.02)),
        ),
        outages=tuple(_outages(rng, spines=spines)),
        restarts=tuple(_restarts(rng)),
        messages=messages,
        pool_packets=2 * window_bytes // (mtu - 28 - 56) + rng.randint(8, 64),
        release_s=maybe(rng.uniform(0, 0.01)),
        withdrawals=tuple(Withdrawal(each.host, each.at_s) for each in _restarts(rng)),
        registered_bytes=sum(message.length + GAP_BYTES for message in messages),
    )


def _outages(rng: Random, *, spines: int) -> list[Outage]:
    if rng.random() < 0.5:
        return []
    return [
        Outage(
            f"spine{rng.randint(1, spines)}", rng.uniform(0, POSTING_S), rng.uniform(0.001, FAULTS_END_S - POSTING_S)
        )
        for _ in range(rng.randint(1, 3))
    ]


def _restarts(rng: Random) -> list[Restart]:
    if rng.random() < 0.5:
        return []
    return [Restart(rng.choice(HOSTS), rng.uniform(0, POSTING_S)) for _ in range(rng.randint(1, 2))]


def _messages(rng: Random, *, longest: int, noise_bytes: int) -> list[ChaosMessage]:
    found: list[ChaosMessage] = []
    target_offset, flawed, cancelled = 0, rng.choice((0.0, 0.1)), rng.choice((0.0, 0.1))
    for _ in range(rng.randint(10, 40)):
        kind = rng.choice(tuple(MessageKind))
        most = min(longest, LONGEST_BYTES) if kind is MessageKind.SEND else LONGEST_BYTES
        length = rng.choice((0, 1, rng.randint(2, 2000), rng.randint(2, most)))
        found.append(
            ChaosMessage(
                rng.choice(HOSTS),
                rng.uniform(0, POSTING_S),
                rng.randint(READABLE_FROM, noise_bytes - READABLE_FROM - length),
                length,
                kind=kind,
                target_offset=target_offset,
                flaw=rng.choice((Flaw.KEY, Flaw.RANGE))
                if rng.random() < flawed and kind is not MessageKind.SEND
                else Flaw.NONE,
                cancel_after_s=rng.uniform(0, 0.05) if rng.random() < cancelled else None,
            )
        )
        target_offset += length + GAP_BYTES
    return found
