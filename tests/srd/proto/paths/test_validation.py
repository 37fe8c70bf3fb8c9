"""An address gets at most three times the bytes received from it until it is validated (RFC 9000, section 8)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from netns.netem.shape import Shape
from srd.proto.paths.validation import AddressValidation, RemoteAddress
from srd.proto.wire.control import Control, Datagram, PathChallenge, PathResponse, Probe, decode_untrusted
from srd.proto.wire.data import HEADER_BYTES, Address, Burst
from srd.proto.work_request import WorkRequest
from tests.simulation import Network, Node, completed, connected, received, release
from tests.srd.proto.byhand import data_packet, give, opened_by_hand

VICTIM = "v:1"


def sent_to(node: Node, *, now: float) -> list[tuple[Address, Control]]:
    """Return the control packets that are sent, and their addresses."""
    out: list[tuple[Address, Control]] = []
    while (sent := node.core.poll_transmit(now)) is not None:
        if isinstance(sent, Datagram):
            out.append((sent.address, decode_untrusted(sent.data)))
    return out


# -- an attacker with a peer at its own address, that forges another address ----------------------------------------


@pytest.mark.parametrize("paths", [1, 16, 128])
@pytest.mark.parametrize("gap_s", [0.0001, 0.01, 0.2])
def test_handle_packets__forged_probes_are_no_amplifier(paths: int, gap_s: float) -> None:
    network = Network(seed=1)
    core = network.b.core
    context = opened_by_hand(network, source="x:1").own_context
    far = data_packet(context, psn=4095, length=10**6)  # so that every ack has a bitmap of 512 bytes
    core.handle_packets([far], controls=[], now=network.now)
    now, asked_bytes, answered = network.now, 0, Counter[Address]()
    for number in range(300):
        now += gap_s
        probe = Probe(context, 77, number % paths, 1000 + number, 0).encode()
        asked_bytes += len(probe)
        core.handle_timeout(now)
        core.handle_packets([], controls=[(probe, VICTIM, now)], now=now)
        for address, packet in sent_to(network.b, now=now):
            answered[address] += len(packet.encode())
    assert answered[VICTIM] <= 3 * asked_bytes
    assert set(answered) == {VICTIM, "x:1"}, "acks without a budget go to the handshake's address"


def test_handle_packets__forged_data_is_no_amplifier() -> None:
    network = Network(seed=1)
    context = opened_by_hand(network, source="x:1").own_context
    far = data_packet(context, psn=4095, path=1, length=10**6)  # so that every ack has a bitmap of 512 bytes
    network.b.core.handle_packets([far], controls=[], now=network.now)
    sent_to(network.b, now=network.now)
    answered_bytes = 0
    for psn in range(100):
        packet = data_packet(context, psn=2 * psn, path_sequence=psn, length=0, payload_bytes=0, source=VICTIM)
        network.b.core.handle_packets([packet], controls=[], now=network.now)
        for address, answer in sent_to(network.b, now=network.now):
            answered_bytes += len(answer.encode()) * (address == VICTIM)
    assert answered_bytes <= 3 * 100 * HEADER_BYTES


def test_handle_packets__a_changing_address_gains_no_budget() -> None:
    """Each change resets the budget to the bytes received since."""
    network = Network(seed=1)
    context = opened_by_hand(network, source="x:1").own_context
    asked, answered = Counter[Address](), Counter[Address]()
    for number in range(200):
        now = network.now + number * 0.01
        source = (VICTIM, "x:1", "w:1")[number % 3]
        probe = Probe(context, 77, 0, number, 0).encode()
        asked[source] += len(probe)
        network.b.core.handle_timeout(now)
        network.b.core.handle_packets([], controls=[(probe, source, now)], now=now)
        for address, packet in sent_to(network.b, now=now):
            answered[address] += len(packet.encode())
            assert address == "x:1" or answered[address] <= 3 * asked[address]
    assert answered["x:1"] > 3 * asked["x:1"], "it has returned a cookie"


# -- honest peers ---------------------------------------------------------------------------------------------------


def sources_of(node: Node, number: int) -> list[RemoteAddress]:
    return list(node.core.peer(number).addresses.sources.values())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss_percent", [0, 20])
def test_connect__addresses_that_carry_data_are_validated(seed: int, loss_percent: int) -> None:
    network = Network(seed=seed, shape=Shape(delay_us=500, loss_percent=loss_percent))
    counted = Counter[str]()

    def count(_: Node, out: Burst | Datagram) -> None:
        if isinstance(out, Datagram):
            counted[type(decode_untrusted(out.data)).__name__] += 1

    network.on_sent = count
    at_a, at_b = network.connect()
    for request in range(20):
        network.a.core.post(at_a, WorkRequest(request=request, length=1 << 20))
        network.run(until=lambda: len(completed(network.a)) > request, seconds=5)  # noqa: B023 - called within the round
        for message in received(network.b)[request:]:
            release(network.b, message, now=network.now)
    sources = sources_of(network.b, at_b)
    assert len(sources) >= 20
    missing = len(sources) - sum(source.validated for source in sources)
    assert missing <= (len(sources) // 4 if loss_percent else 0)
    if not loss_percent:
        assert counted["PathChallenge"] == counted["PathResponse"] <= len(sources), "one for each path"
    assert not sources_of(network.a, at_a), "the source of an ack gets no packets"


def open_and_probe(network: Network) -> tuple[int, RemoteAddress]:
    """Open a peer at b, and have a probe come from another address than its HELLO's; return context and source."""
    context = opened_by_hand(network, source="x:1").own_context
    probe = Probe(context, 77, 3, 0, 0).encode()
    network.b.core.handle_packets([], controls=[(probe, "x:3", network.now)], now=network.now)
    (source,) = sources_of(network.b, 0)
    assert not source.validated
    return context, source


def challenge_of(network: Network) -> PathChallenge:
    (found,) = [
        (packet, address)
        for address, packet in sent_to(network.b, now=network.now)
        if isinstance(packet, PathChallenge)
    ]
    assert found[1] == "x:3"
    return found[0]


def test_handle_response__from_the_address_that_was_challenged_only() -> None:
    network = Network(seed=1)
    context, source = open_and_probe(network)
    challenge = challenge_of(network)
    assert (challenge.context, challenge.remote_path) == (77, 3)
    good = PathResponse(context, challenge.token, 3)
    for packet, address in (
        (good, "x:4"),
        (replace(good, token=challenge.token ^ 1), "x:3"),
        (replace(good, path=4), "x:3"),
        (replace(good, context=context ^ 1), "x:3"),
    ):
        give(network.b, packet, now=network.now, source=address)
        assert not source.validated
    give(network.b, good, now=network.now, source="x:3")
    assert source.validated


def test_handle_response__to_no_challenge() -> None:
    network = Network(seed=1)
    context, source = open_and_probe(network)
    give(network.b, PathResponse(context, 0, 3), now=network.now, source="x:3")
    assert not source.validated


def test_on_packet__a_new_address_of_a_path_resets_its_validation() -> None:
    network = Network(seed=1)
    context, source = open_and_probe(network)
    give(network.b, PathResponse(context, challenge_of(network).token, 3), now=network.now, source="x:3")
    assert source.validated
    probe = Probe(context, 77, 3, 1, 0).encode()
    network.b.core.handle_packets([], controls=[(probe, "y:3", network.now)], now=network.now)
    (moved,) = sources_of(network.b, 0)
    assert (moved.address, moved.validated) == ("y:3", False)
    late = Probe(context, 77, 3, 0, 0).encode()
    network.b.core.handle_packets([], controls=[(late, "x:3", network.now)], now=network.now)
    assert sources_of(network.b, 0) == [moved], "packets from before the move are ignored"


def test_handle_challenge__only_of_open_paths() -> None:
    """An answer over another path would open a socket for it."""
    network, at_a, _ = connected()
    peer = network.a.core.peer(at_a)
    network.a.core.post(at_a, WorkRequest(request=1, length=100))
    network.run(until=lambda: bool(completed(network.a)), seconds=1)
    used = [path.index for path in peer.sender.paths if path.next_sequence]
    assert used
    for path in range(256):
        out = give(network.a, PathChallenge(peer.own_context, 99, path), now=network.now, source="z:1")
        expected = [PathResponse(peer.remote_context, 99, path)] if path in used else []
        assert [packet for packet in out if isinstance(packet, PathResponse)] == expected


# -- AddressValidation ----------------------------------------------------------------------------------------------


def validation() -> AddressValidation:
    tokens = iter(range(100, 200))
    return AddressValidation("home", paths=4, new_token=lambda: next(tokens))


def arrive(ours: AddressValidation, path: int, address: str, *, size_bytes: int = 100) -> RemoteAddress:
    """Have packets arrive over a path of the peer; return the record of the address that the path has then."""
    ours.on_packets(path, address, is_newest=True, size_bytes=size_bytes)
    return ours.sources[path]


def test_on_valid__an_address_in_another_ones_place_is_the_handshake_address_behind_a_nat() -> None:
    """What was never heard of may have been replaced, too: path 2 of the peer."""
    ours = validation()
    ours.on_nat(0, remote_paths=3)
    ours.on_valid(1, "n:1")
    assert ours.handshake_address == "home"
    ours.on_valid(1, "n:7")
    assert ours.handshake_address == "n:7"
    assert [ours.destination(path)[0] for path in range(3)] == ["home", "n:7", "n:7"]
    assert not arrive(ours, 1, "home").validated


@pytest.mark.parametrize(("address", "valid"), [("home", True), ("a:1", True), ("a:2", False), ("new", False)])
def test_on_packets__from_a_known_address(address: str, *, valid: bool) -> None:
    ours = validation()
    known = [arrive(ours, 1, "a:1"), arrive(ours, 2, "a:2")]
    known[0].validated = True
    found = arrive(ours, 3, address)
    assert (found.address, found.validated) == (address, valid)
    assert address == "home" or (found in known) is (address != "new"), "the budget is per address, not per path"


def test_on_packets__older_ones_from_another_address_change_nothing() -> None:
    ours = validation()
    source = arrive(ours, 1, "a:1")
    ours.on_packets(1, "b:1", is_newest=False, size_bytes=50)
    assert (ours.sources, source.received_bytes) == ({1: source}, 100)
    ours.on_packets(1, "a:1", is_newest=False, size_bytes=50)
    assert source.received_bytes == 150


def test_spend__within_the_budget_of_an_address() -> None:
    ours = validation()
    arrive(ours, 1, "a:1", size_bytes=10)
    arrive(ours, 2, "home")
    assert ours.admitted([1, 2], size_bytes=31) == [2]
    assert ours.admitted([1], size_bytes=31) == [2], "none of these may be sent so much"
    assert ours.spend(1, size_bytes=31) is None
    assert ours.spend(9, size_bytes=1) is None, "nothing came from there"
    assert (ours.spend(1, size_bytes=30), ours.spend(2, size_bytes=10**6)) == ("a:1", "home")
    assert ours.admitted([1, 2], size_bytes=1) == [2]


def test_poll__with_the_first_packet_and_again_with_back_off_while_packets_come() -> None:
    ours = validation()
    at, paths = [], []
    for step in range(1, 400):
        now = step * 0.01
        assert ours.poll(overhead_bytes=0, context=1, now=now) is None, "without a packet there is no challenge"
        arrive(ours, 2, "a:1")
        if due := ours.poll(overhead_bytes=0, context=1, now=now):
            assert due[:2] == (PathChallenge(1, 100, 2), "a:1")
            at.append(now)
            paths.append(due[2])
    assert at == pytest.approx([0.01, 0.06, 0.16, 0.36, 0.76, 1.56, 3.16], abs=0.021)
    assert paths == [2, 3, 0, 1, 2, 3, 0], "each over another local path, as one may have failed"


def test_poll__no_budget_no_challenge() -> None:
    ours = validation()
    source = arrive(ours, 2, "a:1", size_bytes=30)
    source.sent_bytes = 100
    assert ours.poll(overhead_bytes=0, context=1, now=1.0) is None
    arrive(ours, 2, "a:1", size_bytes=30)
    assert ours.poll(overhead_bytes=0, context=1, now=1.0) is not None
    assert source.sent_bytes == 125


# -- where packets are sent -------------------------------------------------------------------------------------------


def test_destination__is_the_handshake_address_from_each_port_without_a_nat() -> None:
    ours = validation()
    ours.on_valid(1, "a:1")
    assert [ours.destination(path) for path in range(4)] == [("home", path) for path in range(4)]
    assert not ours.behind_nat
    assert not ours.leads_to(1, remote_path=1)
