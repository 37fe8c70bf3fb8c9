"""An initiator behind a NAT, in virtual time: all paths carry data both ways, mappings are kept, rebindings survived.

The NAT maps and filters by remote address and port, as Linux' masquerading does; its mappings live for 30 s.
"""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netns.netem.shape import Shape
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.peer import PeerCore
from srd.proto.wire.control import PathResponse, Probe
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.nat import Nat
from tests.simulation import Network, Node, completed, content, ended, received, release
from tests.srd.proto.byhand import data_packet
from tests.srd.secure.test_network import security

MIB = 1 << 20
PATHS = 8
KEY = 12
MODES = pytest.mark.parametrize("mode", ["plain", "secure"])


def nat(**fields: Any) -> Nat:
    ports = count(1000)
    return Nat(lambda: f"a:{next(ports)}", **fields)


def behind_nat(
    *,
    seed: int = 1,
    mode: str = "plain",
    paths: int = PATHS,
    shape: Shape | None = None,
    knows_sources: bool = True,
    probe_after_s: float = 0.25,
    **fields: Any,
) -> Network:
    network = Network(
        seed=seed,
        shape=shape or Shape(delay_us=500, rate_bps=100_000_000),
        config=ProtocolConfig(paths=paths, probe_after_s=probe_after_s),
        datagram_bytes=1472,
        region_bytes=8 * MIB,
        security={name: security(socket_id=name.encode()) for name in "ab"} if mode == "secure" else None,
    )
    network.nat = nat(**fields)
    network.knows_sources = knows_sources
    network.a.keys.ranges[KEY] = network.b.keys.ranges[KEY] = (0, 8 * MIB, "lrw")
    return network


def translator(network: Network) -> Nat:
    assert network.nat is not None
    return network.nat


def connected(network: Network) -> tuple[PeerCore, PeerCore]:
    at_a, at_b = network.connect()
    return network.a.core.peer(at_a), network.b.core.peer(at_b)


def post(node: Node, peer: PeerCore, *, offset: int = 0, length: int = MIB) -> None:
    """Write a part of the node's region to the same place of the other end's target."""
    node.core.post(
        peer.number,
        WorkRequest(
            request=len(node.events),
            payload_offset=offset,
            length=length,
            opcode=Opcode.WRITE,
            key=KEY,
            offset=offset,
        ),
    )


def finish(network: Network, *, at_a: int = 0, at_b: int = 0, seconds: float = 30) -> None:
    """Wait for so many completions in all; none has failed."""
    network.run(until=lambda: len(completed(network.a)) >= at_a and len(completed(network.b)) >= at_b, seconds=seconds)
    assert (len(completed(network.a)), len(completed(network.b))) == (at_a, at_b)
    assert {each.status for node in (network.a, network.b) for each in completed(node)} <= {Status.OK}
    assert not ended(network.a)
    assert not ended(network.b)


def assert_written(source: Node, target: Node, *, length: int = MIB) -> None:
    assert target.target[:length].tobytes() == source.region[:length].tobytes()


def packets_by_path(peer: PeerCore) -> list[int]:
    return [path.counters.packets for path in peer.sender.paths[:PATHS]]


def destinations(peer: PeerCore) -> list[str]:
    """Where the paths of b lead to; all are sent from the port that a has contacted."""
    found = [peer.addresses.destination(path) for path in range(PATHS)]
    assert {port for _, port in found} == {0}
    return [address for address, _ in found]


# -- without rebinding ------------------------------------------------------------------------------------------------


@MODES
def test_transfer__every_path_carries_data_both_ways(mode: str) -> None:
    network = behind_nat(mode=mode)
    a, b = connected(network)
    assert (a.behind_nat, b.behind_nat) == (True, True)
    network.run(seconds=0.01)  # the first round of PROBEs
    assert len(set(destinations(b))) == PATHS, "each path has an address of its own"
    post(network.a, a, length=2 * MIB)
    post(network.b, b, length=2 * MIB)
    finish(network, at_a=1, at_b=1)
    assert_written(network.a, network.b, length=2 * MIB)
    assert_written(network.b, network.a, length=2 * MIB)
    for peer in (a, b):
        assert min(packets_by_path(peer)) > 0
    assert translator(network).dropped == 0
    assert translator(network).made == PATHS


@MODES
def test_connect__when_the_first_paths_are_dead(mode: str) -> None:
    """The answer to a HELLO over any path comes from the port that was contacted."""
    network = behind_nat(mode=mode, paths=PATHS)
    network.hash.update({("a", 1000 + port): 0 for port in range(3)})
    network.hash.update({("a", 1003): 1})
    network.dead = {0}
    a, _ = connected(network)
    assert a.behind_nat


def test_transfer__ends_may_have_different_numbers_of_paths() -> None:
    """Path n of the responder leads to path n of the initiator, modulo the number of its paths."""
    network = behind_nat(paths=PATHS)
    network.config = ProtocolConfig(paths=3)
    network.a = network._node("a", 8 * MIB)
    network.a.keys.ranges[KEY] = (0, 8 * MIB, "lrw")
    _, b = connected(network)
    network.run(seconds=0.01)
    found = destinations(b)
    assert len(set(found)) == 3
    assert found == [found[path % 3] for path in range(PATHS)]
    post(network.b, b)
    finish(network, at_b=1)
    assert_written(network.b, network.a)
    assert min(packets_by_path(b)) > 0


# -- idle -------------------------------------------------------------------------------------------------------------


@MODES
def test_idle__mappings_are_kept(mode: str) -> None:
    """Also where keepalive probes are rare, as with thousands of peers: the answers to them use all paths in turn."""
    network = behind_nat(mode=mode, lifetime_s=20, probe_after_s=60)
    _, b = connected(network)
    network.run(seconds=1)
    before = set(translator(network).externals)
    for _ in range(2):
        network.run(seconds=50)
        assert translator(network).externals == before
    post(network.b, b)
    finish(network, at_b=1)
    assert_written(network.b, network.a)
    assert min(packets_by_path(b)) > 0
    assert translator(network).dropped == 0


# -- rebinding --------------------------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("directions", ["up", "down", "both"])
@pytest.mark.parametrize("seed", [1, 2])
def test_rebinding__in_the_middle_of_a_transfer(seed: int, directions: str, mode: str) -> None:
    network = behind_nat(seed=seed, mode=mode)
    a, b = connected(network)
    at_a, at_b = int(directions != "down"), int(directions != "up")
    if at_a:
        post(network.a, a, length=2 * MIB)
    if at_b:
        post(network.b, b, length=2 * MIB)
    network.run(seconds=0.03)
    old = set(destinations(b))
    translator(network).rebind()
    started_at = network.now
    finish(network, at_a=at_a, at_b=at_b)
    assert network.now - started_at < 2.5, "0.1 s on the links, one timeout, and the time to find all paths"
    network.run(seconds=1)
    assert not old & set(destinations(b))
    assert len(set(destinations(b))) == PATHS
    if at_a:
        assert_written(network.a, network.b, length=2 * MIB)
    if at_b:
        assert_written(network.b, network.a, length=2 * MIB)


@MODES
def test_rebinding__while_idle_then_only_the_responder_sends(mode: str) -> None:
    network = behind_nat(mode=mode)
    _, b = connected(network)
    network.run(seconds=5)
    translator(network).rebind()
    network.run(seconds=1)  # a keepalive probe, a challenge, and PROBEs over all paths
    assert set(destinations(b)) == translator(network).externals
    dropped = translator(network).dropped
    post(network.b, b)
    finish(network, at_b=1)
    assert translator(network).dropped == dropped
    assert min(packets_by_path(b)) > 0


def test_rebinding__ports_that_are_exchanged() -> None:
    """Path 1 gets the address that was path 2's, which is valid: no challenge is needed, and both are right."""
    network = behind_nat()
    a, b = connected(network)
    network.run(seconds=0.1)
    one, two = (
        path.external for path in map(translator(network)._by_inside.__getitem__, [("a:1", "b:0"), ("a:2", "b:0")])
    )
    ports = iter([two, one])
    translator(network).rebind("a:1", "a:2")
    translator(network).new_external = lambda: next(ports)
    translator(network).outbound("a:1", "b:0", now=network.now)
    translator(network).outbound("a:2", "b:0", now=network.now)
    post(network.a, a)
    finish(network, at_a=1)
    assert destinations(b)[1:3] == [two, one]


# -- attacks ----------------------------------------------------------------------------------------------------------


@MODES
def test_forged_source__moves_nothing(mode: str) -> None:
    """An attacker on the path repeats authentic packets, and makes ones of its own, from another address."""
    network = behind_nat(mode=mode)
    a, b = connected(network)
    network.run(seconds=0.1)
    before, home = destinations(b), b.addresses.handshake_address
    network.keeps_carried = True
    post(network.a, a)
    finish(network, at_a=1)
    forged = [header + payload for _, target, (header, payload) in network.carried if target[0] == "b"]
    forged = [packet for packet in forged if packet[1] != 1]  # control packets
    forged += [
        Probe(b.own_context, b.remote_context, path, 10**6 + number, 0).encode()
        for path in range(PATHS)
        for number in range(20)
    ]
    asked, answered = 0, 0
    for packet in forged:
        network.b.core.handle_packets([], controls=[(packet, "v:9", network.now)], now=network.now)
        asked += len(packet)
        while (out := network.b.core.poll_transmit(network.now)) is not None:
            answered += len(out.data) if out.address == "v:9" else 0  # type: ignore[union-attr]
    assert answered <= 3 * asked
    if mode == "secure":
        assert answered == 0
    else:
        network.b.core.handle_packets(
            [data_packet(b.own_context, psn=1 << 20, path=3, path_sequence=2 * 10**6, source="v:9")],
            controls=[(PathResponse(b.own_context, 1234, 3).encode(), "v:9", network.now)],
            now=network.now,
        )
    assert destinations(b) == before
    assert b.addresses.handshake_address == home
    post(network.b, b)
    finish(network, at_a=1, at_b=1)
    assert_written(network.b, network.a)
    assert destinations(b) == before


# -- anything ---------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.sampled_from([0.003, 0.05, 0.6, 40.0])),
        st.tuples(st.just("rebind"), st.integers(-1, PATHS - 1)),
        st.tuples(st.just("send"), st.sampled_from("ab")),
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=25)
@given(
    STEPS, st.integers(0, 1 << 16), st.fixed_dictionaries({"maps_by_remote": st.booleans(), "filters": st.booleans()})
)
def test_anything__every_message_arrives(
    steps: list[tuple[str, float | int | str]], seed: int, kind_of_nat: dict[str, Any]
) -> None:
    """Messages of random lengths both ways, idle times and rebindings, with loss, in any order."""
    shape = Shape(delay_us=500, loss_percent=1)
    network = behind_nat(seed=seed, shape=shape, **kind_of_nat)
    a, b = connected(network)
    lengths = Random(seed)
    sent: dict[str, list[int]] = {"a": [], "b": []}
    for kind, value in [*steps, ("send", "a"), ("send", "b")]:
        if kind == "run":
            network.run(seconds=float(value))
        elif kind == "rebind":
            translator(network).rebind(*([] if value == -1 else [f"a:{value}"]))
        else:
            node, peer = (network.a, a) if value == "a" else (network.b, b)
            length = lengths.choice([1, 1000, 60_000])
            node.core.post(peer.number, WorkRequest(request=len(sent[node.name]), length=length))
            sent[node.name].append(length)
    finish(network, at_a=len(sent["a"]), at_b=len(sent["b"]), seconds=60)
    for source, target in ((network.a, network.b), (network.b, network.a)):
        assert sorted(message.length for message in received(target)) == sorted(sent[source.name])
        for message in received(target):
            assert content(target, message.extents) == source.region[: message.length].tobytes()
            release(target, message, now=network.now)
