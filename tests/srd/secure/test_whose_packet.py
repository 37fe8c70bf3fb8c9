"""What a core with keys believes: data counts as a peer's only if that peer's keys have opened it, whatever it says."""

from __future__ import annotations

from srd.proto.wire.data import GroDatagram
from tests.simulation import Network, completed, received
from tests.srd.proto.byhand import data_packet, is_empty
from tests.srd.secure.test_network import exchange, network_of


def two_peers() -> tuple[Network, tuple[int, int], tuple[int, int]]:
    """A network with two peers from a to b, and the contexts that b has chosen for them."""
    network = network_of(seed=1)
    pairs = [network.connect() for _ in range(2)]
    one, other = (network.b.core.peer(there).own_context for _, there in pairs)
    return network, (pairs[0][0], pairs[1][0]), (one, other)


def opened_with(keys: int | None, datagram: GroDatagram) -> GroDatagram:
    """The packet as a receive queue describes it that has decrypted it with the keys of that context."""
    datagram.context = keys
    return datagram


def test_handle_packets__data_that_names_another_context_than_its_keys_is_nobodys() -> None:
    network, (first, second), (one, other) = two_peers()
    core, states = network.b.core, [network.b.core.peer(there) for there in network.b.core.open_peers]
    before = [(peer.receiver.packets, peer.receiver._window.base) for peer in states]
    lies = [opened_with(one, data_packet(other)), opened_with(None, data_packet(other))]
    assert is_empty(core.handle_packets(lies, controls=[], now=network.now))
    assert core.malformed == len(lies)
    assert [(peer.receiver.packets, peer.receiver._window.base) for peer in states] == before
    network.run(seconds=0.1)
    assert not received(network.b)
    for peer in (first, second):
        exchange(network, peer)


def test_handle_packets__data_that_names_its_own_is_delivered() -> None:
    network, _, (one, _) = two_peers()
    result = network.b.core.handle_packets([opened_with(one, data_packet(one))], controls=[], now=network.now)
    assert len(result.kept) == 1
    network.run(until=lambda: bool(received(network.b)), seconds=1)
    assert [message.length for message in received(network.b)] == [100]
    assert not completed(network.a)
