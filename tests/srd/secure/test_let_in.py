"""A peer that was let in and lies, in virtual time: whatever it says, beside it an honest peer's requests succeed."""

from __future__ import annotations

from random import Random

import pytest

from scripts.harness.liar import Liar, Lie, Overheard
from scripts.harness.rogue import RogueInitiator, RoguePeer
from srd.proto.endpoint.peer_state import PeerState
from srd.proto.events import PeerOpened
from srd.proto.wire.control import Datagram, Hello, Probe
from srd.proto.wire.data import HEADER_BYTES, PacketType
from srd.secure.config import Keys
from tests.simulation import Network, Packet, ended
from tests.srd.secure.ends import static
from tests.srd.secure.test_network import exchange, network_of

STEPS = 250
SOURCES = ("x:1", "x:1", "x:1", "x:2", "a:0")
"""Where its packets come from: mostly its own address, sometimes another of its own, or the honest peer's."""


class LetIn:
    """A peer of b at "x:1", and what b sends there."""

    def __init__(self, network: Network, *, rng: Random) -> None:
        self.network = network
        self.rng = rng
        self.rogue = self._open()
        self.liar = Liar(self.rogue, rng=rng, overheard=self._overheard)
        self.give(Lie("", self.rogue.seal(Probe(self.rogue.context, self.rogue.own_context, 0, 0, 0).encode())))

    def _overheard(self) -> list[Overheard]:
        """What is readable in the packets of all peers of b."""
        found = []
        for peer in self.network.b.core._peers.values():
            base = peer.receiver._window.base
            found.append(Overheard(peer.own_context, base, base, 12, peer.remote_context))
        return found

    def _open(self) -> RoguePeer:
        hello = Hello(self.rng.getrandbits(64), 1 << 20, 1 << 10, 1 << 20, 4096, 1472)
        initiator = RogueInitiator(hello, security=Keys(static("rogue"), psk=bytes(range(32))))
        for _ in range(3):
            for data in self.say(initiator.packet):
                if (rogue := initiator.handle_reply(data)) is not None:
                    return rogue
        raise AssertionError("it was not let in")

    def say(self, data: bytes) -> list[bytes]:
        """Give b a packet; return what it sends to "x:1"."""
        core, now = self.network.b.core, self.network.now
        core.handle_packets([], controls=[(data, "x:1", now)], now=now)
        return self.replies()

    def replies(self) -> list[bytes]:
        """Have b send all it can: to x at once, the rest into the network."""
        out: list[bytes] = []
        for _ in range(10_000):
            if (sent := self.network.b.core.poll_transmit(self.network.now)) is None:
                return out
            if str(sent.address).startswith("x"):
                out += [sent.data] if isinstance(sent, Datagram) else []
            else:
                self.network.transmit(self.network.b, sent)
        raise AssertionError("poll_transmit does not end")

    def give(self, lie: Lie) -> bool:
        """Give b what a liar sends, each datagram by itself; return whether its peer has ended."""
        size = lie.segment_bytes or len(lie.data)
        datagrams = [lie.data[at : at + size] for at in range(0, len(lie.data), size)]
        self.network.arrive(self.network.b, [(self.rng.choice(SOURCES), split(each)) for each in datagrams])
        self.network._deliver_events(self.network.b)
        return sum(self.liar.hear_untrusted(data) for data in self.replies()) > 0


def split(datagram: bytes) -> Packet:
    """A datagram as the network carries it."""
    is_data = datagram[1:2] == bytes([PacketType.DATA]) and len(datagram) >= HEADER_BYTES
    return (datagram[:HEADER_BYTES], datagram[HEADER_BYTES:]) if is_data else (datagram, b"")


@pytest.mark.parametrize("seed", range(12))
def test_liar__an_honest_peer_beside_it_succeeds(seed: int) -> None:
    """No error leaves the core, its tables hold open peers only, and memory is that of what was granted."""
    network, rng = network_of(seed=seed), Random(seed)
    here, there = network.connect()
    exchange(network, here)
    liars = [LetIn(network, rng=rng) for _ in range(2)]
    for step in range(STEPS):
        index = rng.randrange(len(liars))
        if liars[index].give(liars[index].liar.next()):
            liars[index] = LetIn(network, rng=rng)
        if step % 50 == 49:
            network.run(seconds=rng.choice((0.001, 0.1, 2.0)))
            exchange(network, here)
        core = network.b.core
        assert all(peer.state is not PeerState.ENDED for peer in core._peers.values())
        assert set(core._by_context.values()) == set(core._peers.values())
        assert set(core.protections) <= set(core._by_context)
        assert {peer for each in core._by_reset.values() for peer in each} <= set(core._peers.values())
    network.run(seconds=60)
    exchange(network, here)
    assert not ended(network.a)
    assert there not in {each.peer for each in ended(network.b)}
    assert network.b.core.open_peers == [there], "the liars have gone silent"
    assert len(network.b.of(PeerOpened)) > 2
