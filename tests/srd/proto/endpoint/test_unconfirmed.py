"""Hosts that make peers and never confirm them keep nobody else out, in virtual time, with keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.base.security import SecurityMode
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.unconfirmed import Unconfirmed
from srd.proto.wire.control import Refuse, SecureAccept, decode_untrusted
from srd.proto.wire.data import Address, network_of
from srd.proto.wire.status import Status
from tests.srd.secure.ends import End, end, security

KEYS = security(SecurityMode.KEYS, "b")
PLACES = 8
LIMITS = {
    "max_unaccepted_peers": ProtocolConfig(paths=1, max_unaccepted_peers=PLACES),
    "max_peers": ProtocolConfig(paths=1, max_peers=PLACES),
}


def hello(two: End, *, source: str, seed: int, now: float, confirms: bool = False) -> End:
    """Make a peer from `source`, which confirms it or not; return its end."""
    one = end("a", security(SecurityMode.KEYS, "a"), seed=seed)
    one.core.connect("b:0", sizes=(1472,), now=now)
    for _ in range(2):  # HELLO, RETRY, HELLO
        (packet,) = one.poll(now)
        answers = two.take(packet, now=now, source=source)
        one.core.handle_packets([], controls=[(answers[-1], "b:0", now)], now=now)
        if isinstance(decode_untrusted(answers[-1]), Refuse):
            break
    if confirms:
        for packet in one.poll(now):
            two.take(packet, now=now, source=source)
    else:
        one.poll(now)
    return one


def is_open(one: End, two: End) -> bool:
    return bool(one.opened) and any(peer.remote_context == one.opened[0].own_context for peer in two.opened)


@pytest.mark.parametrize("limit", LIMITS)
def test_flood__of_one_host_keeps_no_other_out(limit: str) -> None:
    two = end("b", KEYS, config=LIMITS[limit])
    for number in range(3 * PLACES):
        hello(two, source=f"evil:{number}", seed=number, now=100.0)
    assert len(two.core._peers) == PLACES
    for number in range(PLACES):
        assert is_open(hello(two, source=f"host{number}:1", seed=100 + number, now=100.1, confirms=True), two)
        hello(two, source=f"evil:{number}", seed=200 + number, now=100.1)
    if limit == "max_peers":
        assert len(two.core._peers) == PLACES


@pytest.mark.parametrize("limit", LIMITS)
def test_flood__of_many_hosts_takes_the_oldest_places(limit: str) -> None:
    """Each from an address of its own: who confirms at once is in."""
    two = end("b", KEYS, config=LIMITS[limit])
    for number in range(3 * PLACES):
        hello(two, source=f"evil{number}:1", seed=number, now=100.0)
    assert is_open(hello(two, source="host:1", seed=100, now=100.1, confirms=True), two)


def test_flood__of_one_host_is_refused_before_its_handshake() -> None:
    """What it has does not change: it would only cost the responder time."""
    two = end("b", KEYS, config=LIMITS["max_unaccepted_peers"])
    for number in range(PLACES):
        hello(two, source=f"evil:{number}", seed=number, now=100.0)
    before = list(two.core._peers)
    late = hello(two, source="evil:99", seed=99, now=100.0)
    assert [ended.status for ended in late.ended] == [Status.REMOTE_ERROR_RNR]
    assert list(two.core._peers) == before


def test_confirmed__peers_are_never_displaced() -> None:
    two = end("b", KEYS, config=LIMITS["max_peers"])
    for number in range(PLACES):
        assert is_open(hello(two, source="host:1", seed=number, now=100.0, confirms=True), two)
    assert not two.core._unconfirmed
    late = hello(two, source="other:1", seed=99, now=100.0)
    assert [ended.status for ended in late.ended] == [Status.REMOTE_ERROR_RNR]
    assert len(two.core._peers) == PLACES


def test_one_host__has_no_more_than_its_limit() -> None:
    """Whoever else has unconfirmed peers."""
    two = end("b", KEYS, config=ProtocolConfig(paths=1, max_peers=4, max_peers_per_address=2))
    for number in range(2):
        hello(two, source=f"host:{number}", seed=number, now=100.0)
        hello(two, source=f"other{number}:1", seed=10 + number, now=100.0)
    before = list(two.core._peers)
    hello(two, source="host:9", seed=99, now=100.0)
    assert list(two.core._peers) == before


def test_displaced__initiator_is_told() -> None:
    """Its PROBE is answered by a RESET, with the token of its handshake."""
    two = end("b", KEYS, config=LIMITS["max_unaccepted_peers"])
    one = end("a", security(SecurityMode.KEYS, "a"), seed=1)
    one.core.connect("b:0", sizes=(1472,), now=100.0)
    for _ in range(2):
        (packet,) = one.poll(100.0)
        (answer,) = two.take(packet, now=100.0, source="slow:1")
        one.core.handle_packets([], controls=[(answer, "b:0", 100.0)], now=100.0)
    assert isinstance(decode_untrusted(answer), SecureAccept)
    for number in range(PLACES):
        hello(two, source=f"evil{number}:1", seed=10 + number, now=100.1)
    for packet in one.poll(100.2):
        for reply in two.take(packet, now=100.2, source="slow:1"):
            one.take(reply, now=100.2)
    assert [ended.status for ended in one.ended] == [Status.REMOTE_ERROR_UNKNOWN_PEER]


# -- whose place is taken -------------------------------------------------------------------------------------------

WIDE = [("2001:db8::1", 1, 0, 0), ("2001:db8::2", 1, 0, 0), ("2001:db8::2", 2, 0, 0), ("2001:db8::3", 1, 0, 0)]


def places(*addresses: Address) -> Unconfirmed:
    unconfirmed = Unconfirmed()
    for number, address in enumerate(addresses):
        unconfirmed.add(number, address=address)
    return unconfirmed


@pytest.mark.parametrize(
    ("held", "newcomer", "displaced"),
    [
        ([("192.0.2.1", 1), ("192.0.2.1", 2)], ("192.0.2.2", 1), 0),
        ([("192.0.2.2", 1), ("192.0.2.1", 1), ("192.0.2.1", 2)], ("192.0.2.3", 1), 1),
        ([("192.0.2.1", 1), ("192.0.2.1", 2)], ("192.0.2.1", 3), None),
        ([("192.0.2.1", 1), ("192.0.2.2", 1)], ("192.0.2.1", 3), None),
        (WIDE, ("2001:db8:0:1::1", 1, 0, 0), 1),
        (WIDE, ("192.0.2.1", 1), 1),
        (WIDE, ("2001:db8::4", 1, 0, 0), 1),
        (WIDE, ("2001:db8::2", 3, 0, 0), None),
        (WIDE[:2], ("2001:db8::1", 9, 0, 0), None),
        ([*WIDE, ("192.0.2.1", 1)], ("192.0.2.1", 2), 1),
        ([], ("192.0.2.1", 1), None),
    ],
)
def test_displaced_by(held: list[Address], newcomer: Address, displaced: int | None) -> None:
    assert places(*held).displaced_by(newcomer) == displaced


HOSTS = st.sampled_from(["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "fe80::1"])


@given(st.lists(st.tuples(HOSTS, st.booleans()), max_size=40))
def test_places__are_those_of_the_peers_that_are_left(steps: list[tuple[str, bool]]) -> None:
    unconfirmed, model = Unconfirmed(), dict[int, Address]()
    for number, (host, adds) in enumerate(steps):
        if adds:
            model[number] = (host, number)
            unconfirmed.add(number, address=model[number])
        elif model:
            gone = next(iter(model))
            unconfirmed.discard(gone)
            unconfirmed.discard(gone)
            del model[gone]
        displaced = unconfirmed.displaced_by(("198.51.100.1", 1))
        assert (displaced in model) if model else (displaced is None)
    assert bool(unconfirmed) == bool(model)
    for number in list(model):
        unconfirmed.discard(number)
    assert not unconfirmed._networks


@pytest.mark.parametrize(
    ("address", "network"),
    [
        (("2001:db8::1", 7, 0, 0), "2001:db8:0:0"),
        (("2001:db8:1:2:3:4:5:6", 7, 0, 0), "2001:db8:1:2"),
        (("2001:db8:1:2::6", 7, 0, 0), "2001:db8:1:2"),
        (("2001:db8:1:2:3::", 7, 0, 0), "2001:db8:1:2"),
        (("::1", 7, 0, 0), "0:0:0:0"),
        (("fe80::1", 7, 0, 3), "fe80:0:0:0"),
        (("::ffff:192.0.2.1", 7, 0, 0), ("::ffff:192.0.2.1", 0, 0)),
        (("192.0.2.1", 7), ("192.0.2.1",)),
        ("a:0", "a"),
    ],
)
def test_network_of(address: Address, network: object) -> None:
    assert network_of(address) == network
