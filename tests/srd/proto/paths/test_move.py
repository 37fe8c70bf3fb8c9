"""A host that gets another address, in virtual time: its peers move or end in time, and nobody else can move them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from netns.netem.shape import Shape
from srd.proto.base.security import SecurityMode
from srd.proto.config import ProtocolConfig
from srd.proto.paths.validation import AddressValidation
from srd.proto.wire.control import Datagram
from srd.proto.wire.data import Burst, PacketType
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from srd.secure.handshake import Handshakes
from tests.simulation import Network, Node, completed, content, ended, received, release
from tests.srd.secure.ends import security

SEEDS = [1, 2, 3]
MOVED_WITHIN_S = 1.0
ENDED_WITHIN_S = 2.5
LENGTH = 30_000


def keys() -> dict[str, Handshakes | None]:
    return {name: security(SecurityMode.KEYS, name) for name in "ab"}


def network_of(seed: int, *, delay_us: int = 1000, secure: bool = True, **options: Any) -> Network:
    return Network(
        seed=seed,
        shape=options.pop("shape", Shape(delay_us=delay_us)),
        datagram_bytes=1472,
        region_bytes=4 << 20,
        config=ProtocolConfig(paths=8, may_move=options.pop("may_move", True)),
        security=keys() if secure else None,  # type: ignore[arg-type]  # None: plain text
        **options,
    )


class Exchange:
    """A message each way every so often; every byte is compared."""

    def __init__(self, network: Network, *, interval_s: float = 0.02, senders: str = "ab") -> None:
        self.network, self.interval_s, self.senders = network, interval_s, senders
        self.peers = dict(zip("ab", network.connect(), strict=True))
        self.posted = {"a": 0, "b": 0}
        self._taken = {"a": 0, "b": 0}

    def node(self, name: str) -> Node:
        return self.network.a if name == "a" else self.network.b

    def run(self, seconds: float) -> None:
        end = self.network.now + seconds
        while self.network.now < end and not self.ended:
            for name in self.senders:
                number = self.posted[name]
                request = WorkRequest(request=number, payload_offset=number, length=LENGTH, immediate=number)
                self.node(name).core.post(self.peers[name], request)
                self.posted[name] += 1
            self.network.run(until=lambda: self.ended, seconds=self.interval_s)
            self._take()

    def _take(self) -> None:
        for name, sender in ("a", self.network.b), ("b", self.network.a):
            node = self.node(name)
            arrived = received(node)
            for message in arrived[self._taken[name] :]:
                assert message.immediate is not None
                sent = sender.region[message.immediate : message.immediate + LENGTH].tobytes()
                assert content(node, message.extents) == sent
                release(node, message, now=self.network.now)
            self._taken[name] = len(arrived)

    @property
    def ended(self) -> bool:
        return bool(ended(self.network.a) or ended(self.network.b))

    def settle(self) -> None:
        """Let all that was posted arrive, and check that all of it was acknowledged."""
        network = self.network
        network.run(until=lambda: all(len(completed(self.node(name))) == self.posted[name] for name in "ab"), seconds=3)
        self._take()
        for name, other in ("ab", "ba"):
            assert {each.status for each in completed(self.node(name))} <= {Status.OK}
            assert len(completed(self.node(name))) == self.posted[name]
            assert sorted(message.immediate or 0 for message in received(self.node(other))) == list(
                range(self.posted[name])
            )


def started(
    seed: int = 1, *, senders: str = "ab", interval_s: float = 0.02, for_s: float = 0.5, **options: Any
) -> tuple[Network, Exchange]:
    """Return a network of such options, and an exchange that has run for a while."""
    network = network_of(seed, **options)
    exchange = Exchange(network, interval_s=interval_s, senders=senders)
    exchange.run(for_s)
    return network, exchange


def assert_both_end_in_time(exchange: Exchange) -> None:
    network, began = exchange.network, exchange.network.now
    exchange.run(ENDED_WITHIN_S)
    network.run(until=lambda: bool(ended(network.a)) and bool(ended(network.b)), seconds=ENDED_WITHIN_S)
    assert network.now - began < ENDED_WITHIN_S


# -- a host gets another address --------------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("senders", ["ab", "a", "b", ""])
@pytest.mark.parametrize("mover", ["a", "b"])
@pytest.mark.parametrize("seed", SEEDS)
def test_moved__the_peer_goes_on(seed: int, mover: str, senders: str, *, secure: bool) -> None:
    """Whoever moves, and whoever sends, nobody among them."""
    network, exchange = started(seed, secure=secure, senders=senders)
    network.hosts[mover] = f"{mover}2"
    other = "b" if mover == "a" else "a"
    moved_at, validation = network.now, exchange.node(other).core.peer(exchange.peers[other]).addresses
    while validation.handshake_address.startswith(f"{mover}:"):
        exchange.run(0.02)
        assert not exchange.ended
        assert network.now - moved_at < MOVED_WITHIN_S
    exchange.senders = "ab"
    exchange.run(0.5)
    exchange.settle()


@pytest.mark.parametrize("delay_us", [50, 25_000, 100_000])
@pytest.mark.parametrize("mover", ["a", "b"])
def test_moved__over_paths_of_any_length(delay_us: int, mover: str) -> None:
    network, exchange = started(delay_us=delay_us, interval_s=0.1, for_s=0.8)
    network.hosts[mover] = f"{mover}2"
    exchange.run(2)
    assert not exchange.ended
    exchange.settle()


@pytest.mark.parametrize("seed", SEEDS)
def test_moved__with_losses_and_dead_links(seed: int) -> None:
    network, exchange = started(seed, shape=Shape(delay_us=1000, loss_percent=10))
    network.dead = {0}
    network.hosts["a"] = "a2"
    exchange.run(2)
    assert not exchange.ended
    exchange.settle()


def test_moved__again_and_back() -> None:
    network = network_of(1)
    exchange = Exchange(network)
    for address in ("a", "a2", "a3", "a", "a2"):
        network.hosts["a"] = address
        exchange.run(1)
        assert not exchange.ended
    exchange.settle()


@pytest.mark.parametrize("seed", SEEDS)
def test_moved__to_a_longer_way_the_window_starts_anew(seed: int) -> None:
    """What the round trip was before would be taken for an empty queue."""
    network, exchange = started(seed, delay_us=500, senders="b", interval_s=0.01)
    network.hosts["a"] = "a2"
    for link in network.links.values():
        link.shape = Shape(delay_us=20_000)
    exchange.run(1.5)
    before = len(received(network.a))
    exchange.run(1)
    assert len(received(network.a)) - before > 80, "of 100 that were posted"
    exchange.settle()


@pytest.mark.parametrize("mover", ["a", "b"])
@pytest.mark.parametrize("seed", SEEDS)
def test_moved__where_peers_may_not_they_end_in_time(seed: int, mover: str) -> None:
    network, exchange = started(seed, may_move=False)
    network.hosts[mover] = f"{mover}2"
    assert_both_end_in_time(exchange)


def test_moved__no_peer_that_is_silent() -> None:
    """It ends as soon as any other: an address that it once had packets from is not tried."""
    network, exchange = started()
    validation_of(exchange).on_valid(3, "z:3")
    network.a.alive, died_at = False, network.now
    exchange.run(ENDED_WITHIN_S)
    assert ended(network.b)
    assert network.now - died_at < 1.1
    assert "no packet for" in ended(network.b)[0].reason


# -- nothing goes one way ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("senders", ["ab", "a", "b", ""])
@pytest.mark.parametrize("deaf", ["a", "b"])
@pytest.mark.parametrize("seed", SEEDS)
def test_one_way__both_ends_end_in_time(seed: int, deaf: str, senders: str) -> None:
    """Packets to `deaf` are lost; its own arrive, and are no sign that it receives anything."""
    network, exchange = started(seed, senders=senders)
    network.loses = lambda source, _: source != deaf
    assert_both_end_in_time(exchange)
    for node in (network.a, network.b):
        assert network.end_of(node).status in (Status.LOCAL_ERROR_UNRESP_REMOTE, Status.REMOTE_ERROR_UNKNOWN_PEER)
        assert all(each.status is not None for each in completed(node))


def test_one_way__the_reason_says_so() -> None:
    network, exchange = started()
    network.loses = lambda source, _: source == "b"
    exchange.run(ENDED_WITHIN_S)
    (end,) = ended(network.b)
    assert end.reason.startswith("nothing that was sent was acknowledged for 1.")
    assert end.reason.endswith(" s, though packets come")


# -- who cannot move a peer -------------------------------------------------------------------------------------------


class Copier:
    """Sends copies of a's packets from an address of its own, which arrive sooner than the packets themselves."""

    def __init__(self, network: Network, *, passes_on: Callable[[bytes], bool]) -> None:
        self.network, self.got = network, 0
        self.blocks = False  # whether what b sends to a itself is lost
        self.validated: set[str] = set()
        self._passes_on = passes_on
        self._carry = network._send
        network._send = self._send  # type: ignore[method-assign]

    def stop(self) -> None:
        self.network._send = self._carry  # type: ignore[method-assign]

    def _send(self, direction: str, source: str, target: str, packet: tuple[bytes, bytes]) -> None:
        if direction == "a":
            number = source.rpartition(":")[2]
            self.network._late.append((self.network.now, next(self.network._serial), f"evil:{number}", target, packet))
            self.network._late.sort()
        elif target.startswith("evil:"):  # what b sends there: it passes on what serves it
            self.got += packet[0][1] == PacketType.DATA
            self.validated.add(target)
            if self._passes_on(packet[0]):
                self._carry(direction, source, f"a:{target.rpartition(':')[2]}", packet)
            return
        if direction == "a" or not self.blocks:
            self._carry(direction, source, target, packet)


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("passes_on", [True, False])
@pytest.mark.parametrize("senders", ["ab", "b", ""])
def test_copies__from_another_address_that_arrive_first_move_nothing(
    senders: str,
    *,
    passes_on: bool,
    secure: bool,
) -> None:
    """Their sender returns the challenges of its own address, but cannot keep the old one from answering."""
    network, exchange = started(secure=secure, senders=senders, for_s=0.3)
    copier = Copier(network, passes_on=lambda _: passes_on)
    exchange.run(4)
    assert validation_of(exchange).handshake_address.startswith("a:")
    if passes_on and senders != "b":  # then a sends acks only, which show no address
        assert copier.validated, "the other address was validated"
    assert not copier.got
    assert not exchange.ended
    exchange.settle()


def validation_of(exchange: Exchange) -> AddressValidation:
    return exchange.network.b.core.peer(exchange.peers["b"]).addresses


@pytest.mark.parametrize("secure", [True, False])
def test_copies__of_old_packets_from_elsewhere_move_nothing(*, secure: bool) -> None:
    """Not even when the peer is silent, and as many as are sent: no address but the newest packet's counts."""
    network = network_of(1, secure=secure)
    network.keeps_carried = True
    exchange = Exchange(network)
    exchange.run(0.3)
    old = [packet for _, target, packet in network.carried if target.startswith("b:")]
    challenged: list[str] = []

    def note(node: Node, out: Burst | Datagram) -> bool:
        if str(out.address).startswith("evil"):
            challenged.append(str(out.address))
        return node is network.a  # it is silent

    network.on_sent = note
    for _ in range(3):
        for packet in old:
            network.arrive(network.b, [(f"evil:{packet[0][3]}", packet)])
        exchange.run(0.25)
    assert not challenged
    assert validation_of(exchange).other_address is None
    assert validation_of(exchange).handshake_address.startswith("a:")


@pytest.mark.parametrize("seed", SEEDS)
def test_packets__of_another_context_move_nothing(seed: int) -> None:
    """Who was let in has keys of its own only: what it sends under another peer's context is not authentic."""
    network = network_of(seed)
    network.keeps_carried = True
    exchange = Exchange(network)
    exchange.run(0.1)
    number, _ = network.connect()  # the other peer
    network.carried.clear()
    network.a.core.post(number, WorkRequest(request=1, length=LENGTH, immediate=0))
    network.run(seconds=0.6)
    theirs, ours = (
        network.a.core.peer(each).remote_context.to_bytes(8, "big") for each in (number, exchange.peers["a"])
    )
    forged = [(packet[0].replace(theirs, ours), packet[1]) for _, _, packet in network.carried if theirs in packet[0]]
    assert {packet[0][1] for packet in forged} >= {PacketType.DATA, PacketType.PROTECTED}
    challenged: list[str] = []
    network.on_sent = lambda _, out: challenged.append(str(out.address))
    for packet in forged:
        network.arrive(network.b, [("evil:3", packet)])
    exchange.run(1)
    assert challenged
    assert not any(address.startswith("evil") for address in challenged)
    assert not exchange.ended


@pytest.mark.parametrize("seed", SEEDS)
def test_copies__who_keeps_packets_back_gets_them_only_as_long(seed: int) -> None:
    """Where the old address is silent, and the other one returned a challenge, packets go there, and come back."""
    network, exchange = started(seed, for_s=0.3)
    copier = Copier(network, passes_on=lambda _: True)
    exchange.run(0.3)
    copier.blocks = True
    exchange.run(0.9)
    assert copier.got
    copier.stop()
    exchange.run(3)
    assert not exchange.ended
    assert validation_of(exchange).handshake_address.startswith("a:")
    exchange.settle()


# -- the parts --------------------------------------------------------------------------------------------------------


def validation(*, may_move: bool = True) -> AddressValidation:
    return AddressValidation("a:0", paths=8, may_move=may_move, new_token=lambda: 1)


@pytest.mark.parametrize(
    ("valid", "other"),
    [
        ([(3, "z:3")], "z:3"),
        ([(3, "a:3")], None),
        ([(3, "z:3"), (4, "z:4")], "z:3"),
        ([(3, "z:3"), (0, "z:0"), (4, "z:4")], "z:0"),
        ([(3, "z:3"), (4, "y:4")], "y:4"),
        ([(3, "z:3"), (4, "a:4")], None),
    ],
    ids=["another host", "the same host", "the first", "path 0", "a third host", "the old one again"],
)
def test_on_valid__keeps_an_address_of_another_host(valid: list[tuple[int, str]], other: str | None) -> None:
    ours = validation()
    for path, address in valid:
        ours.on_valid(path, address)
    assert ours.other_address == other
