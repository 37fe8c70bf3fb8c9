"""An end that restarts: detected within a second, and its contexts are new."""

from __future__ import annotations

import pytest

from netns.netem.shape import Shape
from srd.proto.events import PeerOpened
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Network, completed, connected, content, ended, received
from tests.srd.proto.contract import KEY_A, KEY_B

SEEDS = [1, 2, 3]
MIB = 1 << 20
LOSSY = Shape(delay_us=500, loss_percent=10)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
@pytest.mark.parametrize("shape", [None, LOSSY], ids=["clean", "lossy"])
def test_initiator__restarts_at_once_from_the_same_address(seed: int, *, busy: bool, shape: Shape | None) -> None:
    """The responder still has the old peer when the new HELLO comes, from the same address and port."""
    network, old, old_there = connected(seed=seed, shape=shape)
    if busy:
        network.a.core.post(old, WorkRequest(request=1, payload_offset=0, length=8 * MIB))
        network.run(seconds=0.003)
    network.replace("a")
    new, new_there = network.connect()
    restarted_at = network.now
    assert new_there != old_there
    network.a.core.post(new, WorkRequest(request=1, payload_offset=77, length=MIB, immediate=5))
    network.run(until=lambda: bool(completed(network.a)), seconds=5)
    assert [(c.peer, c.request, c.status) for c in completed(network.a)] == [(new, 1, Status.OK)]
    (message,) = received(network.b)
    assert (message.peer, message.immediate) == (new_there, 5)
    assert content(network.b, message.extents) == network.a.region[77 : 77 + MIB].tobytes()
    end = network.end_of(network.b)  # by the new one's RESET, not by timeout
    assert (end.peer, end.status) == (old_there, Status.REMOTE_ERROR_UNKNOWN_PEER)
    assert network.now - restarted_at <= 1.1, "within a second of its last packet"
    assert not ended(network.a)
    network.run(seconds=3)
    assert len(ended(network.b)) == 1, "the new one stays"


@pytest.mark.parametrize("seed", SEEDS)
def test_responder__restarts_with_every_kind_of_request_open(seed: int) -> None:
    network = Network(seed=seed, shape=Shape(delay_us=500, rate_bps=10_000_000))
    network.a.keys.ranges[KEY_A] = network.b.keys.ranges[KEY_B] = (0, 8 * MIB, "lrw")
    old, _ = network.connect()
    post = network.a.core.post
    post(old, WorkRequest(request=1, length=4 * MIB))
    post(old, WorkRequest(request=2, length=4 * MIB, opcode=Opcode.WRITE, key=KEY_B))
    post(old, WorkRequest(request=3, length=4 * MIB, opcode=Opcode.READ, key=KEY_B, local_key=KEY_A))
    network.run(seconds=0.1)
    network.replace("b")
    network.b.keys.ranges[KEY_B] = (0, 8 * MIB, "lrw")
    restarted_at = network.now
    network.run(until=lambda: bool(ended(network.a)), seconds=5)
    assert network.now - restarted_at <= 1.1
    unknown = Status.REMOTE_ERROR_UNKNOWN_PEER
    assert {c.request: c.status for c in completed(network.a)} == dict.fromkeys((1, 2, 3), unknown)
    network.run(seconds=2)
    assert not received(network.b)
    assert not network.b.target.any(), "no write for the old end lands at the new one"
    assert not network.b.of(PeerOpened)


@pytest.mark.parametrize("seed", SEEDS)
def test_both__restart_and_connect_again(seed: int) -> None:
    network, old, _ = connected(seed=seed, shape=LOSSY)
    network.a.core.post(old, WorkRequest(request=1, length=8 * MIB))
    network.run(seconds=0.01)
    network.replace("a")
    network.replace("b")
    new, _ = network.connect()
    network.a.core.post(new, WorkRequest(request=9, length=MIB))
    network.run(until=lambda: bool(completed(network.a)), seconds=5)
    assert [(c.request, c.status) for c in completed(network.a)] == [(9, Status.OK)]
    assert [message.length for message in received(network.b)] == [MIB]
    network.run(seconds=3)
    assert not ended(network.a) + ended(network.b)
