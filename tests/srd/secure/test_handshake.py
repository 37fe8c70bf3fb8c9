"""The handshake of two cores, packet by packet: what is wrong is refused or dropped, and opens nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.base.errors import PacketError
from srd.proto.base.security import SecurityMode
from srd.proto.wire.control import (
    Accept,
    Close,
    Closed,
    Control,
    Hello,
    Nack,
    PathChallenge,
    PathResponse,
    Probe,
    Protected,
    Refuse,
    Reset,
    Retry,
    SecureAccept,
    decode_untrusted,
)
from srd.proto.wire.data import PREFIX_BYTES, PacketType
from srd.proto.wire.status import Status
from srd.secure.certificates import parse_untrusted
from srd.secure.handshake import Handshakes, preferred_suite
from srd.secure.noise import public_bytes
from srd.secure.packets import Suite
from srd.secure.session import Session
from tests.srd.secure.ends import PSK, End, certificate, check_of, end, security, static

PLAIN, PSK_MODE, KEYS, CERT = SecurityMode
SECURE = [PSK_MODE, KEYS, CERT]
NOW = 100.0


P = TypeVar("P", bound=Control)


class Opening:
    """Two ends, and the messages of a handshake up to the last one that was asked for."""

    def __init__(self, mode: SecurityMode = KEYS, *, a: Handshakes | None = None, b: Handshakes | None = None) -> None:
        self.mode = mode
        self.b_handshakes = b or security(mode, "b")
        self.a, self.b = end("a", a or security(mode, "a")), end("b", self.b_handshakes)
        self.number = self.a.core.connect(
            "b:0", sizes=(1472,), check_credential=check_of(mode, self.b_handshakes), now=NOW
        )

    def hello(self) -> bytes:
        (data,) = self.a.poll(NOW)
        return data

    def retry(self) -> bytes:
        (data,) = self.b.take(self.hello(), now=NOW)
        return data

    def second(self) -> bytes:
        (data,) = self.a.take(self.retry(), now=NOW)
        return data

    def accept(self) -> bytes:
        (data,) = self.b.take(self.second(), now=NOW)
        return data

    def probe(self) -> bytes:
        """The initiator's first protected packet."""
        (data,) = self.a.take(self.accept(), now=NOW)
        return data

    def open(self) -> None:
        self.b.take(self.probe(), now=NOW)
        assert self.a.opened
        assert self.b.opened


def sessions(opening: Opening) -> tuple[Session, Session]:
    (one,), (other,) = (tuple(each.core.protections.values()) for each in (opening.a, opening.b))
    assert isinstance(one, Session)
    assert isinstance(other, Session)
    return one, other


def kinds(packets: list[bytes]) -> list[type[Control]]:
    return [type(decode_untrusted(data)) for data in packets]


def read(kind: type[P], data: bytes) -> P:
    """Return a packet of this kind."""
    packet = decode_untrusted(data)
    assert isinstance(packet, kind)
    return packet


@pytest.mark.parametrize("mode", SECURE)
def test_handshake__opens_and_shows_who_each_end_is(mode: SecurityMode) -> None:
    opening = Opening(mode)
    assert kinds([opening.probe()]) == [Protected]
    assert opening.a.opened, "the ACCEPT is authentic"
    assert not opening.b.opened, "nothing has shown that the initiator has the keys"
    opening = Opening(mode)
    opening.open()
    credentials = [opening.a.core.peer(0).credential, opening.b.core.peer(0).credential]
    a, b = opening.a.core._security, opening.b_handshakes
    assert a is not None
    assert b is not None
    assert credentials == ([b"", b""] if mode is PSK_MODE else [b.credential, a.credential])


def test_handshake__the_initiators_key_is_never_readable() -> None:
    opening = Opening()
    (first,) = opening.a.poll(NOW)
    (retry,) = opening.b.take(first, now=NOW)
    (second,) = opening.a.take(retry, now=NOW)
    (accept,) = opening.b.take(second, now=NOW)
    key = static("a").public_key().public_bytes_raw()
    assert not any(key in data for data in (first, second, accept))
    assert len(first) == len(retry) == len(second), "the answer is not longer than the question"
    assert len(accept) < len(second)


@pytest.mark.parametrize("mine", SecurityMode)
@pytest.mark.parametrize("theirs", SecurityMode)
def test_modes__that_differ_refuse_each_other(mine: SecurityMode, theirs: SecurityMode) -> None:
    if mine is theirs:
        return
    a, b = end("a", security(mine, "a")), end("b", security(theirs, "b"))
    a.core.connect("b:0", sizes=(1472,), check_credential=check_of(mine, None), now=NOW)
    (hello,) = a.poll(NOW)
    (refuse,) = b.take(hello, now=NOW)
    a.take(refuse, now=NOW)
    (ended,) = a.ended
    assert ended.status is Status.REMOTE_ERROR_FEATURE_MISMATCH
    wanted = {PLAIN: "plain text only", PSK_MODE: "symmetric key", KEYS: "public keys", CERT: "certificates"}[theirs]
    assert wanted in ended.reason
    assert not b.core.open_peers


# -- wrong keys ------------------------------------------------------------------------------------------------------


def test_psk__another_one() -> None:
    """The responder cannot know before the first protected packet, which never comes."""
    opening = Opening(PSK_MODE, b=security(PSK_MODE, "b", psk=bytes(31) + b"x"))
    assert not opening.a.take(opening.accept(), now=NOW)
    opening.a.core.handle_timeout(NOW + 60)
    opening.b.core.handle_timeout(NOW + 60)
    opening.a.poll(NOW + 60)
    opening.b.poll(NOW + 60)
    assert "not authentic" in opening.a.ended[0].reason
    assert not opening.b.opened
    assert not opening.b.core.protections


def test_keys__the_responder_has_another_key() -> None:
    opening = Opening(KEYS)
    opening.a.core._openings[0]._check_credential = check_of(KEYS, security(KEYS, "other"))
    assert not opening.a.take(opening.retry(), now=NOW), "nothing is sent to it, least of all the own key"
    opening.a.core.handle_timeout(NOW + 60)
    opening.a.poll(NOW + 60)
    assert opening.a.ended[0].reason == "b has another key"


@pytest.mark.parametrize(("name", "allowed"), [("a", True), ("c", False)])
def test_keys__an_authorised_list(name: str, *, allowed: bool) -> None:
    only = frozenset({static("a").public_key().public_bytes_raw()})
    opening = Opening(KEYS, a=security(KEYS, name), b=security(KEYS, "b", only=only))
    opening.b_handshakes = opening.b.core._security  # type: ignore[assignment]
    answer = opening.accept()
    assert kinds([answer]) == [SecureAccept if allowed else Refuse]
    if not allowed:
        opening.a.take(answer, now=NOW)
        assert "does not accept this end's key" in opening.a.ended[0].reason
        assert not opening.b.core._peers


def test_cert__of_another_authority_is_refused_by_both_ends() -> None:
    foreign = Handshakes(
        CERT, static=static("c"), certificate=certificate("c", names=("b",), issuer="evil"), socket_id=b"1"
    )
    opening = Opening(CERT, b=foreign)
    assert not opening.a.take(opening.retry(), now=NOW)
    assert "is issued by 'CN=evil', which is not trusted" in opening.a.core._openings[0].failure
    opening = Opening(CERT, a=foreign)
    assert kinds([opening.accept()]) == [Refuse]


def test_cert__of_another_key() -> None:
    """Who has copied a certificate does not have its key."""
    thief = Handshakes(CERT, static=static("thief"), certificate=certificate("a", names=("b",)), socket_id=b"1")
    opening = Opening(CERT, a=thief)
    assert not opening.b.take(opening.second(), now=NOW)
    assert opening.b.core.malformed == 1
    opening = Opening(CERT, b=thief)
    assert not opening.b.take(opening.second(), now=NOW), "it cannot read what was encrypted for the key"
    assert not opening.a.opened


def test_cert__that_does_not_fit_into_the_datagrams() -> None:
    names = tuple(f"a-rather-long-name-of-a-host-{number}.example.com" for number in range(14))
    large = certificate("b", names=("b", *names))
    assert 576 < len(large) < 960
    big = Handshakes(CERT, static=static("b"), certificate=large, socket_id=b"1")
    for a, b, expected in ((None, big, "the other end's certificate"), (big, None, "this end's certificate")):
        opening = Opening(CERT, a=a, b=b)
        opening.a.core.close(0, now=NOW)
        number = opening.a.core.connect(
            "b:0", sizes=(576,), check_credential=check_of(CERT, opening.b_handshakes), now=NOW
        )
        for _ in range(4):
            for data in opening.a.poll(NOW):
                for answer in opening.b.take(data, now=NOW):
                    opening.a.take(answer, now=NOW)
        opening.a.core.handle_timeout(NOW + 60)
        opening.a.poll(NOW + 60)
        assert [each.reason for each in opening.a.ended if each.peer == number and expected in each.reason]


# -- flipped and forged ----------------------------------------------------------------------------------------------


def signed(credential: bytes, mode: SecurityMode) -> bytes:
    """What an authority has signed of a certificate: one bit of a signature's encoding means nothing."""
    return parse_untrusted(credential).tbs_certificate_bytes if mode is CERT else credential


def flips(data: bytes, *, until: int, step: int = 1) -> list[bytes]:
    found = []
    for bit in range(0, 8 * until, step):
        forged = bytearray(data)
        forged[bit // 8] ^= 1 << bit % 8
        found.append(bytes(forged))
    return found


@pytest.mark.parametrize("mode", SECURE)
def test_hello__each_bit_of_the_second_flipped_once(mode: SecurityMode) -> None:
    """Up to the padding: no peer is made, whatever is answered."""
    opening = Opening(mode)
    second = opening.second()
    hello = read(Hello, second)
    until = len(hello.transcript) + 2 + len(hello.message)
    answered = set()
    for forged in flips(second, until=until):
        probe = Opening(mode)  # a cookie is used up by a message that is not authentic
        probe.second()
        answered |= set(kinds(probe.b.take(forged, now=NOW)))
        assert not probe.b.core._peers
    assert answered <= {Retry, Refuse}


@pytest.mark.parametrize("mode", SECURE)
def test_retry__each_bit_flipped_once(mode: SecurityMode) -> None:
    """A RETRY is not authenticated, but it is of no use with another cookie or credential."""
    opening = Opening(mode)
    data = opening.retry()
    retry = read(Retry, data)
    for forged in flips(data, until=43 + len(retry.credential)):
        probe = Opening(mode)
        probe.retry()
        for second in probe.a.take(forged, now=NOW):
            for answer in probe.b.take(second, now=NOW):
                probe.a.take(answer, now=NOW)
        if probe.a.opened:
            found = read(Retry, forged)
            assert found.cookie == retry.cookie
            assert signed(found.credential, mode) == signed(retry.credential, mode)
        assert not probe.b.opened


@pytest.mark.parametrize("mode", SECURE)
def test_accept__each_bit_flipped_once_and_then_the_right_one(mode: SecurityMode) -> None:
    opening = Opening(mode)
    accept = opening.accept()
    for forged in flips(accept, until=len(accept)):
        if forged[1] == PacketType.REFUSE:
            continue  # that is not authenticated, and ends the attempt
        assert Protected not in kinds(opening.a.take(forged, now=NOW))
        assert not opening.a.opened
    opening.a.take(accept, now=NOW)
    assert opening.a.opened, "what anybody may have sent does not end the attempt"


@pytest.mark.parametrize("mode", SECURE)
def test_first_packet__each_bit_flipped_once(mode: SecurityMode) -> None:
    opening = Opening(mode)
    probe = opening.probe()
    for forged in flips(probe, until=len(probe)):
        opening.b.take(forged, now=NOW)
        assert not opening.b.opened
    opening.b.take(probe, now=NOW)
    assert opening.b.opened


def unprotected(context: int, own: int) -> list[Control]:
    return [
        Close(context, own),
        Closed(context, own),
        Reset(context, own),
        Reset(0, own, bytes(16)),
        Nack(context, 0, Status.REMOTE_ERROR_ABORT),
        PathChallenge(context, 1, 0),
        PathResponse(context, 1, 0),
        Probe(context, own, 0, 0, 0, 255, 0, 0),
        Accept(context, own, 1 << 30, 1 << 20, 1 << 20, 4096, 1472),
        Refuse(context, Status.REMOTE_ERROR_ABORT),
        SecureAccept(context, bytes(80)),
        Retry(context, bytes(24), 0, 1472, bytes(32)),
    ]


@pytest.mark.parametrize("mode", SECURE)
def test_open_peer__what_is_not_protected_changes_nothing(mode: SecurityMode) -> None:
    """With both contexts, which whoever listens knows."""
    opening = Opening(mode)
    opening.open()
    a, b = opening.a.core.peer(0), opening.b.core.peer(0)
    for victim, context, own in (
        (opening.a, a.own_context, a.remote_context),
        (opening.b, b.own_context, b.remote_context),
    ):
        before = victim.core.peer(0).state
        for packet in unprotected(context, own):
            assert not victim.take(packet.encode(), now=NOW), packet
        assert victim.core.peer(0).state is before
        assert not victim.ended
    one, other = sessions(opening)
    assert one.generation == other.generation == 0


def test_open_peer__what_is_protected_for_another_context_or_has_an_odd_content() -> None:
    opening = Opening()
    opening.open()
    one, _ = sessions(opening)
    context = opening.b.core.peer(0).own_context
    own = opening.a.core.peer(0).own_context
    for content in (
        Close(context ^ 1, own).encode(),
        Retry(context, bytes(24)).encode(),
        Refuse(context, Status.REMOTE_ERROR_ABORT).encode(),
        bytes(40),
    ):
        assert not opening.b.take(one.seal_control(content, context=context, now=NOW), now=NOW)
        assert not opening.b.ended
    opening.b.take(one.seal_control(Close(context, own).encode(), context=context, now=NOW), now=NOW)
    assert opening.b.ended, "sabotage: the right one is accepted"


# -- replayed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", SECURE)
def test_hello__replayed(mode: SecurityMode) -> None:
    """While its peer is open it is ignored, and refused afterwards: a cookie opens one peer."""
    opening = Opening(mode)
    hello = opening.second()
    (accept,) = opening.b.take(hello, now=NOW)
    assert opening.b.take(hello, now=NOW) == [accept], "the ACCEPT may have been lost"
    (probe,) = opening.a.take(accept, now=NOW)
    opening.b.take(probe, now=NOW)
    assert not opening.b.take(hello, now=NOW)
    opening.b.core.abandon(0, status=Status.OK, reason="test", now=NOW)
    opening.b.poll(NOW)
    assert kinds(opening.b.take(hello, now=NOW)) == [Refuse]
    assert not opening.b.core._peers


@pytest.mark.parametrize("mode", SECURE)
def test_hello__a_forged_one_does_not_spend_the_cookie(mode: SecurityMode) -> None:
    """Neither the initiator's own, nor the memory for those of others."""
    opening = Opening(mode)
    second = opening.second()
    hello = read(Hello, second)
    for _ in range(3):
        assert not opening.b.take(replace(hello, message=bytes(len(hello.message))).encode(), now=NOW)
    assert opening.b.core._stateless._cookies.used_count == 0
    assert kinds(opening.b.take(second, now=NOW)) == [SecureAccept]


def test_hello__refused_for_its_key_gets_the_same_reason_again() -> None:
    opening = Opening(b=security(KEYS, "b", only=frozenset()))
    second = opening.second()
    first, again = (opening.b.take(second, now=NOW) for _ in range(2))
    assert kinds(first) == [Refuse]
    assert first == again


def test_hello__of_a_former_life_of_the_responder() -> None:
    opening = Opening()
    hello = opening.second()
    later = End("b", end("b", security(KEYS, "b"), seed=2).core)
    later.core._stateless._cookies._secret = b"another life"
    assert kinds(later.take(hello, now=NOW)) == [Retry]
    assert not later.core._peers


def test_accept__of_an_earlier_attempt() -> None:
    earlier = Opening()
    accept = earlier.accept()
    opening = Opening()
    opening.a.core._shared.new_token = lambda: 5
    opening.second()
    opening.a.take(accept, now=NOW)
    assert not opening.a.opened


def answers_per_s(a: End, retry: Callable[[Hello, int], bytes]) -> float:
    """How many HELLOs an initiator sends that gets one RETRY after another, 0.1 ms after each HELLO."""
    hellos, now, count = a.poll(NOW), NOW, 0
    while now < NOW + 0.5:
        now += 0.0001
        asked = [decode_untrusted(data) for data in hellos]
        hellos = [out for hello in asked if isinstance(hello, Hello) for out in a.take(retry(hello, count), now=now)]
        a.core.handle_timeout(now)
        hellos += a.poll(now)
        count += len(hellos)
    return 2 * count


@pytest.mark.parametrize("credential", [b"x" * 31, bytes(32), public_bytes(static("b"))], ids=["31", "zeros", "good"])
def test_retry__many_are_not_answered_at_the_rate_of_round_trips(credential: bytes) -> None:
    a = end("a", security(KEYS, "a"))
    a.core.connect("b:0", sizes=(1472,), now=NOW)
    assert answers_per_s(a, lambda hello, n: Retry(
        hello.own_context, n.to_bytes(24, "big"), hello.path, 1472, credential
    ).encode()) <= 50  # fmt: skip


def test_retry__where_the_own_certificate_does_not_fit() -> None:
    long = certificate("a", names=tuple(f"host-{number:03d}.example.org" for number in range(20)))
    a = end("a", Handshakes(CERT, static=static("a"), certificate=long, socket_id=b"1"))
    b = end("b", security(CERT, "b"))
    a.core.connect("b:0", sizes=(720,), now=NOW)
    assert answers_per_s(a, lambda hello, _: (b.take(hello.encode(), now=NOW) or [b""])[0]) <= 50
    a.core.handle_timeout(NOW + 2)  # long before an attempt without an answer ends
    a.poll(NOW + 2)
    assert "this end's certificate does not fit into 720 bytes" in a.ended[0].reason


@pytest.mark.parametrize("mode", SECURE)
def test_retry__another_while_the_accept_is_under_way(mode: SecurityMode) -> None:
    """Two HELLOs were answered on both sides of a boundary of the cookies' time; the ACCEPT is of the first cookie."""
    opening = Opening(mode)
    first = opening.hello()
    opening.a.core.handle_timeout(NOW + 0.051)
    (later,) = opening.a.poll(NOW + 0.051)
    assert later == first, "nothing has arrived yet"
    (retry,), (other,) = opening.b.take(first, now=NOW - 1), opening.b.take(later, now=NOW + 0.06)
    assert retry != other
    (hello,) = opening.a.take(retry, now=NOW + 0.06)
    (accept,) = opening.b.take(hello, now=NOW + 0.06)
    opening.a.take(other, now=NOW + 0.07)
    opening.a.core.handle_timeout(NOW + 0.2)
    (repeated,) = opening.a.poll(NOW + 0.2)
    assert repeated != hello, "sabotage: the handshake goes on with the other cookie"
    opening.a.take(accept, now=NOW + 0.21)
    assert opening.a.opened


# -- reset -----------------------------------------------------------------------------------------------------------


def test_reset__by_an_end_that_has_lost_its_state() -> None:
    opening = Opening()
    opening.open()
    one, _ = sessions(opening)
    context = opening.b.core.peer(0).own_context
    reborn = end("b", security(KEYS, "b"), seed=2)
    packet = one.seal_control(Probe(context, 1, 0, 0, 0, 255, 0, 600).encode(), context=context, now=NOW)
    (reset,) = reborn.take(packet, now=NOW)
    assert len(reset) < len(packet)
    for forged in flips(reset, until=len(reset))[8 * PREFIX_BYTES :]:
        opening.a.take(forged, now=NOW)
        assert not opening.a.ended
    opening.a.take(reset, now=NOW)
    assert opening.a.ended[0].status is Status.REMOTE_ERROR_UNKNOWN_PEER


def test_reset__is_shorter_than_what_it_answers() -> None:
    """So two ends without state do not answer each other for ever."""
    lonely = end("b", security(KEYS, "b"))
    shortest = Session(send_secret=bytes(32), receive_secret=bytes(32), suite=Suite.AES_256_GCM, now=NOW).seal_control(
        b"12345678", context=7, now=NOW
    )
    assert not lonely.take(shortest, now=NOW)


@pytest.mark.parametrize("name", ["c", "port"])
def test_reset_token__of_another_key_or_port(name: str) -> None:
    b = Handshakes(KEYS, static=static("b"), socket_id=b"1")
    other = Handshakes(KEYS, static=static("c" if name == "c" else "b"), socket_id=b"1" if name == "c" else b"2")
    assert b.reset_token(7) != other.reset_token(7)
    assert b.reset_token(7) != b.reset_token(8)


# -- suites ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mine", Suite)
@pytest.mark.parametrize("theirs", Suite)
def test_suite__aes_where_both_have_its_instructions(mine: Suite, theirs: Suite) -> None:
    a, b = (
        Handshakes(KEYS, static=static(name), socket_id=b"1", suite=suite)
        for name, suite in (("a", mine), ("b", theirs))
    )
    opening = Opening(a=a, b=b)
    opening.open()
    expected = max(mine, theirs)
    one, other = sessions(opening)
    assert type(one._send.aead) is type(other._send.aead)
    assert ("ChaCha" in type(one._send.aead).__name__) is (expected is Suite.CHACHA20_POLY1305)


@pytest.mark.parametrize(
    ("text", "suite"), [("flags : fpu aes sse", Suite.AES_256_GCM), ("flags : fpu sse", Suite.CHACHA20_POLY1305)]
)
def test_preferred_suite__by_the_processors_instructions(tmp_path: Path, text: str, suite: Suite) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert preferred_suite(tmp_path / "cpuinfo") is suite
    assert preferred_suite(tmp_path / "none") is Suite.AES_256_GCM


def test_choose__none_in_common() -> None:
    with pytest.raises(PacketError, match="none in common"):
        Handshakes(KEYS, static=static("b"), socket_id=b"1").choose(4)


@given(st.binary(max_size=300))
def test_respond__arbitrary_bytes(message: bytes) -> None:
    with pytest.raises(PacketError):
        Handshakes(KEYS, static=static("b"), psk=PSK, socket_id=b"1").respond_untrusted(message, transcript=b"")


@given(st.binary(max_size=17))
def test_respond__a_short_payload(payload: bytes) -> None:
    """Of an initiator that does not follow the protocol."""
    b = Handshakes(KEYS, static=static("b"), socket_id=b"1")
    rogue = Handshakes(KEYS, static=static("a"), socket_id=b"1")
    state = rogue.state(transcript=b"", responder_key=b.credential)
    message = state.write_message(payload)
    with suppress(PacketError):
        b.respond_untrusted(message, transcript=b"")
        assert len(payload) == 17


@given(st.binary(max_size=60))
def test_accept__a_payload_that_violates_the_protocol(payload: bytes) -> None:
    """Of a responder that has the keys."""
    a, b = Handshakes(KEYS, static=static("a"), socket_id=b"1"), Handshakes(KEYS, static=static("b"), socket_id=b"1")
    initiation = a.initiate_untrusted(b.credential, transcript=b"t", context=1)
    state = b.state(transcript=b"t", responder_key=None)
    state.read_message_untrusted(initiation.message)
    message = state.write_message(payload)
    with suppress(PacketError):
        secured = initiation.read_untrusted(message, now=NOW)
        assert payload[:1] in (b"\1", b"\2")
        assert secured.payload == payload[17:]


@pytest.mark.parametrize("body", [b"", bytes(38)], ids=["cut short", "of a window that is too small"])
@pytest.mark.parametrize("suite", [1, 2, 9])
def test_accept__more_than_one_that_violates_the_protocol(suite: int, body: bytes) -> None:
    """Authentic ones, as a responder sends them that has the keys and means harm; then the right one."""
    opening = Opening()
    hello = read(Hello, opening.second())
    assert opening.b_handshakes is not None
    for _ in range(3):
        state = opening.b_handshakes.state(transcript=hello.transcript, responder_key=None)
        state.read_message_untrusted(hello.message)
        message = state.write_message(bytes([suite]) + bytes(16) + body)
        assert not opening.a.take(SecureAccept(hello.own_context, message).encode(), now=NOW)
    assert not opening.a.opened
    (accept,) = opening.b.take(hello.encode(), now=NOW)
    opening.a.take(accept, now=NOW)
    assert opening.a.opened


def open_to(a: End, other: End, *, address: str) -> int:
    """Open a peer from `a` to another end; return its number."""
    number = a.core.connect(address, sizes=(1472,), now=NOW)
    (hello,) = a.poll(NOW)
    for _ in range(2):
        (reply,) = other.take(hello, now=NOW, source="a:0")
        (hello,) = a.take(reply, now=NOW, source=address)
    other.take(hello, now=NOW, source="a:0")
    return number


@pytest.mark.parametrize("first", ["b", "c"])
def test_reset__is_understood_though_another_end_has_chosen_the_same_context(first: str) -> None:
    """An end that was let in chooses its context freely: b's is readable in every packet that is sent to b."""
    a = end("a", security(KEYS, "a"))
    others = {"b": end("b", security(KEYS, "b")), "c": end("b", security(KEYS, "c"))}
    opened = {
        name: open_to(a, others[name], address=f"{name}:0") for name in sorted("bc", key=lambda name: name != first)
    }
    contexts = {a.core.peer(number).remote_context for number in opened.values()}
    assert len(contexts) == 1, "c chooses what b has chosen"
    later = NOW + 1
    a.core.handle_timeout(later)
    lost = [data for data in a.poll(later) if isinstance(decode_untrusted(data), Protected)]
    resets = [reply for data in lost for reply in end("b", security(KEYS, "b"), seed=2).take(data, now=later)]
    assert resets
    for reset in resets:  # b was restarted, and has no state of its peer
        a.take(reset, now=later, source="b:0")
    assert [(each.peer, each.status) for each in a.ended] == [(opened["b"], Status.REMOTE_ERROR_UNKNOWN_PEER)]
    assert a.core.open_peers == [opened["c"]]
    a.core.abandon(opened["c"], status=Status.OK, reason="", now=later)
    assert not a.core._by_reset
