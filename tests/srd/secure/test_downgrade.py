"""An exhaustive search over the message graph of the handshake: what an attacker on the path can bring about.

The attacker holds every packet of the handshake, one after the other. It delivers, drops or reflects it, replays what
went before, or replaces it by one of its own, for which it has its own static key, its own certificate by an authority
that nobody trusts, and everything that it has seen. All sequences of its choices are tried, as in a model checker, but
on the code itself. (ProVerif and Tamarin are not in Debian.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from srd.proto.base.errors import PacketError
from srd.proto.base.security import Initiation, SecurityMode
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.core import EndpointCore
from srd.proto.endpoint.peer import PeerCore
from srd.proto.wire.control import (
    Accept,
    Control,
    Hello,
    Probe,
    Refuse,
    Retry,
    SecureAccept,
    accept_untrusted,
    decode_untrusted,
)
from srd.proto.wire.status import RefuseReason, Status
from srd.secure.handshake import Handshakes
from srd.secure.session import Session
from tests.srd.secure import ends as ends_module
from tests.srd.secure.ends import End, certificate, end, security, static

PLAIN, PSK, KEYS, CERT = SecurityMode
DEPTH = 4
"""Packets that the attacker chooses for: HELLO, RETRY, HELLO, ACCEPT. What follows is delivered. (With 5 it takes five
times as long, and finds nothing more.)"""
NOW = 100.0


@dataclass
class Attacker:
    """What it has and has seen."""

    mode: SecurityMode
    """What it pretends to speak: that of its victims, or plain text."""
    seen: list[tuple[str, bytes]] = field(default_factory=list)
    initiations: list[Initiation] = field(default_factory=list)
    hellos: list[Hello] = field(default_factory=list)
    credentials: dict[str, bytes] = field(default_factory=dict)

    def handshakes(self) -> Handshakes:
        foreign = certificate("evil", names=("a", "b"), issuer="evil") if self.mode is CERT else b""
        return Handshakes(self.mode or KEYS, static=static("evil"), certificate=foreign, socket_id=b"1")

    def choices(self, target: str, data: bytes) -> Iterator[tuple[str, bytes]]:
        """What it may give to whom instead of a packet for `target`."""
        yield target, data
        yield "nobody", data
        yield "b" if target == "a" else "a", data
        earlier = [old for receiver, old in self.seen if receiver == target and old != data]
        if earlier:
            yield target, earlier[-1]
        yield from self._as_initiator(data)
        for made in self._instead(decode_untrusted(data)):
            yield target, made

    def _as_initiator(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """A first protected packet for b, if b has accepted a handshake message of the attacker's."""
        packet = decode_untrusted(data)
        if not isinstance(packet, SecureAccept):
            return
        for initiation in list(self.initiations):
            try:
                secured = initiation.read_untrusted(packet.message, now=NOW)
                context = accept_untrusted(packet.context, secured.payload).own_context
            except PacketError:
                continue
            self.initiations.remove(initiation)
            probe = Probe(context, packet.context, 0, 0, 0, 255, 0, 0).encode()
            yield "b", secured.protection.seal_control(probe, context=context, now=NOW)

    def _instead(self, packet: Control) -> Iterator[bytes]:
        if isinstance(packet, Hello):
            yield from self._instead_of_hello(packet)
        elif isinstance(packet, Retry):
            yield from self._instead_of_retry(packet)
        elif isinstance(packet, SecureAccept | Accept | Refuse):
            yield from self._instead_of_accept(packet.context)

    def _instead_of_hello(self, hello: Hello) -> Iterator[bytes]:
        for mode in SecurityMode:
            if mode != hello.security:
                yield replace(hello, security=mode, message=b"").encode()
        if hello.cookie:
            yield replace(hello, credit_bytes=1).encode()
            if credential := self.credentials.get("b"):  # a man in the middle opens a peer of its own, or tries
                try:
                    made = self.handshakes().initiate_untrusted(
                        credential, transcript=hello.transcript, context=hello.own_context
                    )
                except PacketError:
                    return
                self.initiations.append(made)
                yield replace(hello, message=made.message).encode()

    def _instead_of_retry(self, retry: Retry) -> Iterator[bytes]:
        yield replace(retry, credential=self.handshakes().credential).encode()
        yield replace(retry, credential=b"").encode()
        yield from self._instead_of_accept(retry.context)

    def _instead_of_accept(self, context: int) -> Iterator[bytes]:
        yield Accept(context, 99, 1 << 20, 1 << 10, 1 << 20, 4096, 1472).encode()
        yield Refuse(context, Status.REMOTE_ERROR_FEATURE_MISMATCH, RefuseReason.NEEDS_PLAIN).encode()
        if self.hellos and self.hellos[-1].message:  # it answers as the responder, if it can read the question
            yield SecureAccept(context, bytes(110)).encode()
            hello = self.hellos[-1]
            try:
                response = self.handshakes().respond_untrusted(hello.message, transcript=hello.transcript)
            except PacketError:
                return
            body = Accept(context, 99, 1 << 20, 1 << 10, 1 << 20, 4096, 1472).body
            yield SecureAccept(context, response.write(body, context=99, now=NOW)[0]).encode()

    def see(self, target: str, data: bytes) -> None:
        self.seen.append((target, data))
        packet = decode_untrusted(data)
        if isinstance(packet, Hello):
            self.hellos.append(packet)
        elif isinstance(packet, Retry):
            self.credentials["b" if target == "a" else "a"] = packet.credential


@dataclass
class Case:
    """The two ends."""

    mine: SecurityMode
    theirs: SecurityMode
    same_psk: bool = True
    only_a: bool = False

    def ends(self) -> tuple[End, End]:
        other = None if self.same_psk else bytes(31) + b"x"
        allowed = frozenset({static("a").public_key().public_bytes_raw()}) if self.only_a else None
        b_handshakes = security(self.theirs, "b", psk=other, only=allowed)
        a, b = end("a", security(self.mine, "a")), end("b", b_handshakes)
        a.core.connect("b:0", sizes=(1472,), check_credential=ends_module.check_of(self.mine, b_handshakes), now=NOW)
        return a, b


CASES = {
    "psk-psk": Case(PSK, PSK),
    "psk-another": Case(PSK, PSK, same_psk=False),
    "keys-keys": Case(KEYS, KEYS),
    "keys-only-a": Case(KEYS, KEYS, only_a=True),
    "cert-cert": Case(CERT, CERT),
    "psk-plain": Case(PSK, PLAIN),
    "plain-psk": Case(PLAIN, PSK),
    "keys-plain": Case(KEYS, PLAIN),
    "plain-keys": Case(PLAIN, KEYS),
    "keys-psk": Case(KEYS, PSK),
    "cert-keys": Case(CERT, KEYS),
}


def run(case: Case, decisions: list[int]) -> tuple[End, End, Attacker, int]:
    """Run one path of the graph; return the ends, and how many choices the packet after `decisions` leaves."""
    a, b = case.ends()
    attacker = Attacker(case.mine)
    flying = [("b", data) for data in a.poll(NOW)]
    step, alternatives = 0, 0
    now = NOW
    for _ in range(40):
        if not flying:
            now += 0.06  # so that HELLOs are repeated
            for node in (a, b):
                node.core.handle_timeout(now)
            flying = [("b", data) for data in a.poll(now)] + [("a", data) for data in b.poll(now)]
            continue
        target, data = flying.pop(0)
        attacker.see(target, data)
        given = target, data
        if step <= len(decisions):
            choices = list(attacker.choices(target, data))
            if step == len(decisions):
                alternatives = len(choices)
            else:
                given = choices[decisions[step]]
        step += 1
        if given[0] != "nobody":
            receiver, back = (a, "b") if given[0] == "a" else (b, "a")
            flying += [(back, answer) for answer in receiver.take(given[1], now=now)]
    return a, b, attacker, alternatives


def explore(case: Case, check: Callable[[End, End, Attacker, list[int]], None]) -> int:
    """Visit every path of the graph, and check the state that it leads to."""
    paths, waiting = 0, [list[int]()]
    while waiting:
        decisions = waiting.pop()
        a, b, attacker, alternatives = run(case, decisions)
        check(a, b, attacker, decisions)
        paths += 1
        if len(decisions) < DEPTH:
            waiting += [[*decisions, choice] for choice in range(1, alternatives)]
            if alternatives and len(decisions) + 1 < DEPTH:
                waiting.append([*decisions, 0])
    return paths


def check(case: Case, a: End, b: End, decisions: list[int]) -> None:
    """The promises to each end that wants encryption, for the state after one path."""
    what = f"{case} {decisions}"
    evil = static("evil").public_key().public_bytes_raw()
    can_open = case.mine is case.theirs and case.same_psk
    for mode, node, other in ((case.mine, a, "b"), (case.theirs, b, "a")):
        for peer in node.opened if mode is not PLAIN else ():
            assert peer.protection is not None, f"{what}: {node.name} speaks plain text"
            if node is b and mode is KEYS and not case.only_a and peer.credential == evil:
                continue  # whoever has a key may open a peer, and is known by it
            assert can_open, f"{what}: {node.name} has opened a peer with an end that cannot be its peer"
            shown = security(mode, other)
            assert shown is not None
            if mode is not PSK:
                assert peer.credential == shown.credential, f"{what}: {node.name} has opened a peer of another end"
    if case.mine is not PLAIN and a.opened and b.opened:
        check_agreement(a.opened[0], [peer for peer in b.opened if peer.credential != evil], what)


def check_agreement(here: PeerCore, others: list[PeerCore], what: str) -> None:
    """Both ends have the same contexts, parameters and keys."""
    for there in others:
        assert (here.own_context, here.remote_context) == (there.remote_context, there.own_context), what
        assert here.datagram_bytes == there.datagram_bytes, what
        for peer in (here, there):
            assert peer.sender.max_message_bytes == ProtocolConfig().max_message_bytes, what
            assert isinstance(peer.protection, Session)
        one, other = here.protection, there.protection
        assert one is not None
        assert other is not None
        data = one.seal_control(b"x" * 20, context=there.own_context, now=NOW)
        assert other.open_control_untrusted(data, now=NOW) == b"x" * 20, what


@pytest.mark.compiled
@pytest.mark.parametrize("name", CASES)
def test_downgrade__no_sequence_of_an_attackers_choices(name: str) -> None:
    case = CASES[name]
    honest, paths_open = 0, 0

    def check_one(a: End, b: End, _attacker: Attacker, decisions: list[int]) -> None:
        nonlocal honest, paths_open
        check(case, a, b, decisions)
        is_open = bool(a.opened and b.opened)
        paths_open += is_open
        honest += is_open and not any(decisions)

    paths = explore(case, check_one)
    assert paths >= 100, "the graph has branches"
    may_open = case.mine is case.theirs and case.same_psk
    assert bool(honest) is may_open
    assert bool(paths_open) is may_open


SABOTAGE: dict[str, tuple[str, object, object, str]] = {
    "what is not protected is accepted": (
        "_unprotect_untrusted",
        EndpointCore,
        lambda _core, packet, now: packet,  # noqa: ARG005 - as the real one
        "keys-keys",
    ),
    "any credential is accepted": ("check_of", ends_module, lambda _mode, _expected: None, "keys-keys"),
    "everybody is authorised": ("admits", Handshakes, lambda _handshakes, _credential: True, "keys-only-a"),
}


@pytest.mark.sources
@pytest.mark.parametrize("name", SABOTAGE)
def test_search__sees_sabotage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attribute, owner, instead, case = SABOTAGE[name]
    monkeypatch.setattr(owner, attribute, instead)
    with pytest.raises(AssertionError):
        explore(CASES[case], lambda a, b, _attacker, decisions: check(CASES[case], a, b, decisions))
