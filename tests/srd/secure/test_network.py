"""Two secure cores over a simulated network that loses, reorders, repeats and corrupts: every packet is encrypted."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from netns.netem.shape import Shape
from srd.proto.base.security import SecurityMode
from srd.proto.endpoint.peer import CONFIRM_S
from srd.proto.events import PeerOpened
from srd.proto.wire.data import Opcode, PacketType
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from srd.secure import session as session_module
from srd.secure.handshake import Handshakes
from srd.secure.session import Session
from tests.simulation import Conditions, Network, completed, content, ended, received, release
from tests.srd.secure.sessions import Nonces

SEEDS = [1, 2, 3]
MIB = 1 << 20
KEY_A, KEY_B = 11, 12
PSK = bytes(range(32))


def security(*, socket_id: bytes = b"a") -> Handshakes:
    static = X25519PrivateKey.from_private_bytes(socket_id * 32)
    return Handshakes(SecurityMode.KEYS, static=static, psk=PSK, socket_id=socket_id)


def network_of(*, seed: int, shape: Shape | None = None, conditions: Conditions | None = None) -> Network:
    network = Network(
        seed=seed,
        shape=shape,
        conditions=conditions,
        datagram_bytes=1472,
        region_bytes=4 * MIB,
        security={"a": security(socket_id=b"a"), "b": security(socket_id=b"b")},
    )
    network.a.keys.ranges[KEY_A] = network.b.keys.ranges[KEY_B] = (0, 4 * MIB, "lrw")
    return network


def sessions(network: Network) -> list[Session]:
    return [session for node in (network.a, network.b) for session in node.core.protections.values()]  # type: ignore[misc]


def exchange(network: Network, here: int, *, size: int = MIB // 2) -> None:
    """A send with an immediate, a write and a read complete, with the right bytes."""
    before = len(completed(network.a))
    post = network.a.core.post
    post(here, WorkRequest(request=1, payload_offset=77, length=size, immediate=5))
    post(here, WorkRequest(request=2, payload_offset=99, length=size, opcode=Opcode.WRITE, key=KEY_B))
    post(here, WorkRequest(request=3, length=size, opcode=Opcode.READ, key=KEY_B, local_key=KEY_A))
    network.run(until=lambda: len(completed(network.a)) == before + 3 and bool(received(network.b)), seconds=60)
    assert {each.status for each in completed(network.a)[before:]} == {Status.OK}
    message = received(network.b)[-1]
    assert message.immediate == 5
    assert content(network.b, message.extents) == network.a.region[77 : 77 + size].tobytes()
    assert network.b.target[:size].tobytes() == network.a.region[99 : 99 + size].tobytes()
    assert network.a.target[:size].tobytes() == network.b.region[:size].tobytes()
    release(network.b, message, now=network.now)


@pytest.mark.sources  # replaces the ciphers
@pytest.mark.parametrize("seed", SEEDS)
def test_nonces__none_is_used_twice_under_chaos(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, duplicates, reordering, key updates every 200 packets, and both ends restarted."""
    monkeypatch.setattr(session_module, "UPDATE_PACKETS", 200)
    nonces = Nonces(monkeypatch)
    conditions = Conditions(duplicate=0.05, reorder_s=0.002, corrupt=0.02)
    network = network_of(seed=seed, shape=Shape(delay_us=500, loss_percent=5), conditions=conditions)
    for life in range(3):
        here, _ = network.connect()
        for _ in range(2):
            exchange(network, here)
        assert max(session.generation for session in sessions(network)) >= 3
        network.replace("ab"[life % 2])
        network.a.keys.ranges[KEY_A] = network.b.keys.ranges[KEY_B] = (0, 4 * MIB, "lrw")
    assert len(nonces.used) > 6 * 3 * MIB // 2 // 1400
    assert len(nonces.keys) >= 3 * 2 * 4, "each life and each generation has keys of its own"


@pytest.mark.sources
def test_nonces__a_wrap_of_the_path_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets carry 32 bits of 64: they wrap without a loss."""
    nonces = Nonces(monkeypatch)
    network = network_of(seed=1)
    here, _ = network.connect()
    sender = network.a.core.peer(here).sender
    exchange(network, here)
    for jump in ((1 << 31) - 100, (1 << 32) - 100, (1 << 32) + (1 << 31) - 200, (1 << 33) - 300):
        for path in sender.paths:
            path.next_sequence = max(jump, path.next_sequence)
        exchange(network, here)
    assert not any(session.forged for session in sessions(network))
    assert nonces.used


@pytest.mark.parametrize("seed", SEEDS)
def test_corrupted__every_tenth_packet_has_a_flipped_bit(seed: int) -> None:
    network = network_of(seed=seed, conditions=Conditions(corrupt=0.1))
    here, _ = network.connect()
    exchange(network, here)
    assert sum(session.forged + session.replayed for session in sessions(network)) > 20
    assert not ended(network.a)
    assert not ended(network.b)


def test_replayed__everything_that_arrived_arrives_again() -> None:
    """Also at the wrong end (reflection), and from another address: nothing happens but counting."""
    network = network_of(seed=1)
    network.keeps_carried = True
    here, there = network.connect()
    exchange(network, here)
    network.run(seconds=0.5)
    network.keeps_carried = False
    carried = list(network.carried)
    events = len(network.a.events), len(network.b.events)
    remote = network.b.core.peer(there).address
    targets = [network.a.target.copy(), network.b.target.copy()]
    for node in (network.a, network.b):
        for source, _, packet in carried:
            for address in (source, "x:9"):
                network.arrive(node, [(address, packet)])
                network._serve(node)
    assert (len(network.a.events), len(network.b.events)) == events
    assert network.b.core.peer(there).address == remote
    assert network.a.core.open_peers == [here]
    assert network.b.core.open_peers == [there]
    for before, node in zip(targets, (network.a, network.b), strict=True):
        assert (before == node.target).all()
    exchange(network, here)


def test_former_life__its_packets_open_nothing_and_change_nothing() -> None:
    network = network_of(seed=1)
    network.keeps_carried = True
    here, _ = network.connect()
    exchange(network, here)
    network.keeps_carried = False
    carried = [packet for _, target, packet in network.carried if target[0] == "b"]
    network.replace("b")
    network.run(until=lambda: bool(ended(network.a)), seconds=5)
    for packet in carried:
        network.arrive(network.b, [("a:0", packet)])
    network.run(seconds=0.1)
    assert not network.b.of(PeerOpened)
    assert not network.b.target.any()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_restart__of_the_responder_is_told_by_a_reset_with_its_token(seed: int, *, busy: bool) -> None:
    network = network_of(seed=seed)
    here, _ = network.connect()
    if busy:
        network.a.core.post(here, WorkRequest(request=1, length=4 * MIB))
        network.run(seconds=0.002)
    network.replace("b")
    began = network.now
    assert network.end_of(network.a).status is Status.REMOTE_ERROR_UNKNOWN_PEER
    assert network.now - began <= 1.1


def test_initiator__that_never_confirms_is_forgotten() -> None:
    """The responder's application does not see it; its place is free long before the initiator gives up."""
    network = network_of(seed=1)
    network.loses = lambda source, packet: source == "b" and packet[0][1] == PacketType.SECURE_ACCEPT
    network.a.core.connect("b:0", sizes=(1472,), now=network.now)
    network.run(until=lambda: bool(network.b.core.protections), seconds=1)
    assert network.b.core.protections
    network.run(until=lambda: not network.b.core.protections, seconds=CONFIRM_S + 1)
    assert not ended(network.a)
    network.run(until=lambda: bool(ended(network.a)), seconds=10)
    assert not network.b.of(PeerOpened)
    assert not network.b.core.open_peers
    assert not network.b.core.protections
