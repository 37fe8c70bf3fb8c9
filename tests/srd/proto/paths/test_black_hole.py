"""A path whose MTU has shrunk without a word: rows of losses, and how soon a peer notices, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.netem.shape import Shape
from srd.proto.base.security import SecurityMode
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.peer_state import PeerState
from srd.proto.events import Completion, PeerEnded
from srd.proto.paths.black_hole import MTU_SUSPECT_LOSSES, MTU_SUSPECT_ROUNDS, BlackHole
from srd.proto.paths.path import PathState
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from srd.secure.handshake import Handshakes
from tests.simulation import Network, ended, received, release
from tests.srd.secure.ends import security

SIZE, SMALLER = 1472, 1272
SEEDS = range(10)
WITHIN_S = 1.4
STEP_S = 0.01

# -- rows of losses ---------------------------------------------------------------------------------------------------


def lose(row: BlackHole, count: int, *, size: int = 1000, at: float, answered_at: float = math.inf) -> None:
    row.on_burst(count, size_bytes=size, sent_at=at, answered_at=answered_at, now=at + 0.1)


def test_row__is_a_black_hole_after_several_rounds() -> None:
    row = BlackHole()
    for number in range(MTU_SUSPECT_ROUNDS):
        assert not row.is_found
        lose(row, MTU_SUSPECT_LOSSES, at=10.0 + number)
        assert row.is_suspect
    assert row.is_found
    row.on_delivered(999)
    assert row.is_found
    row.on_delivered(1000)
    assert not row.packets


def test_row__began_when_its_first_packet_was_sent() -> None:
    row = BlackHole()
    for at in (11.0, 10.0, 12.0):
        lose(row, 1, at=at)
    assert row.began_at == 10.0
    row.on_delivered(1000)
    lose(row, 1, at=13.0)
    assert row.began_at == 13.0


SIZES = st.sampled_from([100, 600, 1000, 1400])


@given(st.lists(st.tuples(st.booleans(), SIZES), max_size=60), st.sampled_from([50, 500, 900, 1200]))
def test_row__of_a_network_that_loses_some_sizes_never_ends(steps: list[tuple[bool, int]], largest: int) -> None:
    """Where all that is longer than `largest` is lost, and only that, the row has all of it."""
    row, lost = BlackHole(), 0
    for number, (_, size) in enumerate(steps):
        if size > largest:
            lost += 1
            lose(row, 1, size=size, at=10.0 + number)
        elif row.packets:
            row.on_delivered(size)
        assert row.packets == lost


@given(st.lists(st.tuples(st.booleans(), SIZES), max_size=60))
def test_row__of_a_network_that_delivers_every_size_is_short(steps: list[tuple[bool, int]]) -> None:
    """It has no more than what was lost since a packet of the longest size was delivered."""
    row, since = BlackHole(), 0
    for number, (is_lost, size) in enumerate(steps):
        if is_lost:
            since += 1
            lose(row, 1, size=size, at=10.0 + number)
        else:
            if row.packets:
                row.on_delivered(size)
            since = 0 if size == 1400 else since
        assert row.packets <= since


# -- a peer -----------------------------------------------------------------------------------------------------------


class Traffic:
    """Requests of one kind from a to b, or both ways, every `STEP_S`."""

    def __init__(self, network: Network, kind: str, *, seed: int, both: bool = False) -> None:
        self.network, self._kind, self._rng = network, kind, Random(seed)
        here, there = network.connect()
        self.ends = [(network.a, here), *([(network.b, there)] if both else [])]
        self._requests = 0
        self._released = {"a": 0, "b": 0}

    def _lengths(self, waiting: int) -> list[int]:
        match self._kind:
            case "bulk":
                return [1 << 20] * (4 - waiting)
            case "limited":  # to 16 Mbit/s
                return [20_000]
            case "in chunks":
                return [256 << 10] if round(self.network.now / STEP_S) % 13 == 0 else []
            case "mostly short":
                return [100, *([3000] if self._rng.random() < 0.2 else [])]
            case "less than full":
                return [1400 - 16]
            case _:
                raise AssertionError(self._kind)

    def run(self, seconds: float) -> None:
        """Go on for so long, or until a peer ends."""
        network = self.network
        end = network.now + seconds
        while network.now < end and not (ended(network.a) or ended(network.b)):
            for node, number in self.ends:
                peer = node.core.peer(number)
                waiting = peer.sender.queue.count
                for length in self._lengths(waiting) if peer.state is PeerState.OPEN else []:
                    node.core.post(number, WorkRequest(request=self._requests, length=length))
                    self._requests += 1
            network.run(until=lambda: bool(ended(network.a) or ended(network.b)), seconds=STEP_S)
            for node in (network.a, network.b):
                arrived = received(node)
                for message in arrived[self._released[node.name] :]:
                    release(node, message, now=network.now)
                self._released[node.name] = len(arrived)


def network_of(
    seed: int,
    *,
    delay_us: int = 100,
    rate_bps: int = 0,
    links: int = 1,
    loss_percent: float = 0,
    **options: Any,
) -> Network:
    shape = Shape(delay_us=delay_us, rate_bps=rate_bps, loss_percent=loss_percent)
    config = ProtocolConfig(paths=options.pop("paths", 32))
    return Network(
        seed=seed, shape=shape, links=links, config=config, datagram_bytes=SIZE, region_bytes=2 << 20, **options
    )


def shrink(traffic: Traffic) -> PeerEnded:
    """Shrink the path's MTU in the middle of it; check that a peer ends in time, and return the end."""
    network = traffic.network
    traffic.run(0.3 + network.rng.random() / 4)
    assert not ended(network.a)
    assert not ended(network.b)
    network.conditions.largest_bytes = SMALLER
    began = network.now
    traffic.run(10)
    (end,) = ended(network.a) or ended(network.b)
    assert network.now - began < WITHIN_S
    assert end.status is Status.LOCAL_ERROR_UNRESP_REMOTE
    return end


@pytest.mark.parametrize("kind", ["bulk", "limited", "in chunks", "mostly short", "less than full"])
@pytest.mark.parametrize("seed", SEEDS)
def test_shrunk_mtu__is_noticed_soon(seed: int, kind: str) -> None:
    end = shrink(Traffic(network_of(seed), kind, seed=seed))
    assert end.reason == f"no path carries packets of {SIZE} bytes any more"


CONDITIONS: dict[str, Callable[[int], Traffic]] = {
    "long": lambda seed: Traffic(network_of(seed, delay_us=25_000), "mostly short", seed=seed),
    "long and bulk": lambda seed: Traffic(network_of(seed, delay_us=25_000), "in chunks", seed=seed),
    "lossy": lambda seed: Traffic(network_of(seed, loss_percent=5), "limited", seed=seed),
    "both ways": lambda seed: Traffic(network_of(seed), "in chunks", seed=seed, both=True),
    "one path": lambda seed: Traffic(network_of(seed, paths=1), "limited", seed=seed),
    "four links": lambda seed: Traffic(network_of(seed, links=4), "bulk", seed=seed),
    "encrypted": lambda seed: Traffic(network_of(seed, security=_keys()), "limited", seed=seed),
}


def _keys() -> dict[str, Handshakes | None]:
    return {name: security(SecurityMode.KEYS, name) for name in "ab"}


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("seed", SEEDS[:5])
def test_shrunk_mtu__is_noticed_soon_whatever_the_path(seed: int, conditions: str) -> None:
    shrink(CONDITIONS[conditions](seed))


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.READ])
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_shrunk_mtu__ends_writes_and_reads(seed: int, opcode: Opcode) -> None:
    """What reads is not what sends the data; it gets a status, too."""
    network = network_of(seed, rate_bps=200_000_000)
    for node in (network.a, network.b):
        node.keys.ranges[7] = (0, 2 << 20, "lrw")
    here, _ = network.connect()
    for request in range(200):
        network.a.core.post(here, WorkRequest(request, 1 << 20, opcode=opcode, key=7, local_key=7))
    network.run(seconds=0.05)
    network.conditions.largest_bytes = SMALLER
    assert network.end_of(network.a).status is not Status.OK
    done = network.a.of(Completion)
    assert len(done) == 200
    assert done[-1].status is not Status.OK


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_shrunk_mtu__of_one_link_of_four_ends_nothing(seed: int) -> None:
    """Its paths carry no data; the others go on."""
    network = network_of(seed, links=4)

    def narrow(direction: str, packet: tuple[bytes, bytes]) -> bool:
        return direction == "a" and sum(map(len, packet)) > SMALLER and network.hash["a", packet[0][3] or 4095] == 1

    network.loses = narrow
    traffic = Traffic(network, "limited", seed=seed)
    traffic.run(3)
    assert not ended(network.a)
    sender = network.a.core.peer(traffic.ends[0][1]).sender
    active = [path for path in sender.paths if path.state is PathState.ACTIVE and path.index]
    assert active
    assert not any(network.hash["a", path.index] == 1 and path.rtt.sampled and path.counters.lost for path in active)


@pytest.mark.parametrize("seed", SEEDS[:5])
@pytest.mark.parametrize("outage_s", [0.2, 0.7])
def test_outage__of_all_sizes_is_no_black_hole(seed: int, outage_s: float) -> None:
    """When the link is up again the paths need no full-size probe, and carry data at once."""
    network = network_of(seed)
    traffic = Traffic(network, "limited", seed=seed)
    traffic.run(0.3)
    network.dead = {0}
    traffic.run(outage_s)
    sender = network.a.core.peer(traffic.ends[0][1]).sender
    assert not any(path.mtu_suspect for path in sender.paths[:32])
    network.dead = set()
    delivered = len(received(network.b))
    traffic.run(0.5)
    assert not ended(network.a)
    assert len(received(network.b)) > delivered + 30


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_restored_mtu__in_time_nothing_ends(seed: int) -> None:
    """A full-size probe finds out."""
    network = network_of(seed)
    traffic = Traffic(network, "limited", seed=seed)
    traffic.run(0.3)
    network.conditions.largest_bytes = SMALLER
    traffic.run(0.5)
    sender = network.a.core.peer(traffic.ends[0][1]).sender
    assert not sender.has_active_path
    network.conditions.largest_bytes = SIZE
    delivered = len(received(network.b))
    traffic.run(1)
    assert not ended(network.a)
    assert len(received(network.b)) > delivered + 100, "what had waited, too"


@pytest.mark.parametrize("loss_percent", [10, 40])
@pytest.mark.parametrize("seed", SEEDS[:3])
def test_loss__is_no_black_hole(seed: int, loss_percent: float) -> None:
    network = network_of(seed, loss_percent=loss_percent, links=4)
    traffic = Traffic(network, "limited", seed=seed)
    traffic.run(3)
    assert not ended(network.a)
    assert len(received(network.b)) > (280 if loss_percent == 10 else 200)
