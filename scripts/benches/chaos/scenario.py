"""What a seed stands for: a small fabric, its weather, what dies when, and who sends what to whom.

Each trouble is there in about half of the scenarios, so that both its absence and every combination occur.
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
"""Messages are posted, and things die, within this time."""
STORM_S: Final = 2.0
"""Then the weather turns calm; what is repaired is repaired by then."""
LONGEST_BYTES: Final = SPARE_BYTES
GAP_BYTES: Final = 16
"""Between the places of messages: what goes astray by a little shows."""
BOUND_S: Final = 12.0
"""By then every request must have ended: 10 s after the last trouble, where 1 s of silence ends a peer."""


@dataclass(frozen=True, slots=True)
class Weather:
    """What happens to datagrams besides the links' shapes; fractions of all."""

    duplicate: float = 0.0
    late: float = 0.0
    late_s: float = 0.0
    """A late datagram comes up to this much later than it should."""
    flip: float = 0.0
    """One bit of the datagram is flipped."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A spine that swallows everything for a while."""

    spine: str
    at_s: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Restart:
    """A process that starts anew and remembers nothing."""

    host: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A host's registrations lose their keys; others take their place."""

    host: str
    at_s: float


class Kind(Enum):
    """What a message is."""

    SEND = auto()
    WRITE = auto()
    WRITE_WITH_IMMEDIATE = auto()
    READ = auto()


class Flaw(Enum):
    """Why a write or a read must be refused."""

    NONE = auto()
    KEY = auto()
    """Its key is nobody's."""
    RANGE = auto()
    """It reaches beyond what is registered, by one byte."""


@dataclass(frozen=True, slots=True)
class Message:
    """`length` bytes from `payload_offset` of everybody's source of noise."""

    host: str
    """Who posts it."""
    at_s: float
    payload_offset: int
    length: int
    kind: Kind = Kind.SEND
    place: int = 0
    """WRITE: where in the other's registration; READ: where in its own. Each message has a place to itself."""
    flaw: Flaw = Flaw.NONE
    cancel_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that one seed stands for."""

    seed: int
    topology: Topology
    config: ProtocolConfig
    weather: Weather
    outages: tuple[Outage, ...]
    restarts: tuple[Restart, ...]
    messages: tuple[Message, ...]
    pool_packets: int
    """Packets that a host has memory for."""
    release_s: float
    """A delivered message is released up to this much later."""
    withdrawals: tuple[Withdrawal, ...] = ()
    registered_bytes: int = 0
    """What the messages' places take."""


def scenario(seed: int, *, noise_bytes: int) -> Scenario:
    """The scenario of a seed; messages lie within `noise_bytes`."""
    rng = Random(f"chaos/{seed}")  # noqa: S311 - to be drawn again alike

    def often(value: float) -> float:
        return value if rng.random() < 0.5 else 0.0

    shape = Shape(
        delay_us=rng.randint(10, 2000),
        jitter_us=often(rng.randint(1, 500)),
        loss_percent=often(round(rng.uniform(0, 30), 2)),
        rate_bps=round(often(rng.choice((100_000_000, 1_000_000_000)))),
        limit_packets=rng.randint(8, 200),
    )
    spines = rng.randint(1, 4)
    mtu = rng.choice((1280, 1500, 9000))
    window_bytes = rng.choice((16_384, 65_536, 1 << 20))
    messages = tuple(_messages(rng, longest=window_bytes, noise_bytes=noise_bytes))
    return Scenario(
        seed=seed,
        topology=fully_meshed(leaves=2, spines=spines, hosts_per_leaf=1, mtu=mtu, shape=shape, name="chaos", seed=seed),
        config=replace(
            ProtocolConfig(),
            paths=rng.randint(1, 16),
            receive_window_bytes=window_bytes,
            max_message_bytes=window_bytes,
        ),
        weather=Weather(
            duplicate=often(rng.uniform(0, 0.1)),
            late=often(rng.uniform(0, 0.2)),
            late_s=rng.uniform(0, 0.005),
            flip=often(rng.uniform(0, 0.02)),
        ),
        outages=tuple(_outages(rng, spines=spines)),
        restarts=tuple(_restarts(rng)),
        messages=messages,
        pool_packets=2 * window_bytes // (mtu - 28 - 56) + rng.randint(8, 64),
        release_s=often(rng.uniform(0, 0.01)),
        withdrawals=tuple(Withdrawal(each.host, each.at_s) for each in _restarts(rng)),
        registered_bytes=sum(message.length + GAP_BYTES for message in messages),
    )


def _outages(rng: Random, *, spines: int) -> list[Outage]:
    if rng.random() < 0.5:
        return []
    return [
        Outage(f"spine{rng.randint(1, spines)}", rng.uniform(0, POSTING_S), rng.uniform(0.001, STORM_S - POSTING_S))
        for _ in range(rng.randint(1, 3))
    ]


def _restarts(rng: Random) -> list[Restart]:
    if rng.random() < 0.5:
        return []
    return [Restart(rng.choice(HOSTS), rng.uniform(0, POSTING_S)) for _ in range(rng.randint(1, 2))]


def _messages(rng: Random, *, longest: int, noise_bytes: int) -> list[Message]:
    found: list[Message] = []
    place, flawed, cancelled = 0, rng.choice((0.0, 0.1)), rng.choice((0.0, 0.1))
    for _ in range(rng.randint(10, 40)):
        kind = rng.choice(tuple(Kind))
        most = min(longest, LONGEST_BYTES) if kind is Kind.SEND else LONGEST_BYTES
        length = rng.choice((0, 1, rng.randint(2, 2000), rng.randint(2, most)))
        found.append(
            Message(
                rng.choice(HOSTS),
                rng.uniform(0, POSTING_S),
                rng.randint(READABLE_FROM, noise_bytes - READABLE_FROM - length),
                length,
                kind=kind,
                place=place,
                flaw=rng.choice((Flaw.KEY, Flaw.RANGE))
                if rng.random() < flawed and kind is not Kind.SEND
                else Flaw.NONE,
                cancel_after_s=rng.uniform(0, 0.05) if rng.random() < cancelled else None,
            )
        )
        place += length + GAP_BYTES
    return found
