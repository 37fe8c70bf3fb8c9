"""srd.secure.session: packets are private, authentic and new; nonces are used once; keys change under way."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.base.errors import PacketError
from srd.proto.wire.control import Close
from srd.proto.wire.data import ABORTED, HEADER_BYTES, IMMEDIATE
from srd.proto.wire.protected import KEY_PHASE, TAG_BYTES
from srd.secure import session as module
from srd.secure.packets import Suite
from srd.secure.session import OLD_KEYS_RTTS, REPLAY_WINDOW, UPDATE_S, ReplayWindow, Session
from tests.srd.secure.sessions import CONTEXT, Sealed, pair, plain_headers, seal, seal_headers, unseal

CLOSE = Close(CONTEXT, 7).encode()
PAYLOADS = [bytes([number]) * 100 for number in range(5)]


def state(session: Session) -> dict[str, Any]:
    """Everything that decides what is accepted, without counters of what was not."""
    windows = {path: (window.next, window._run, window._bits) for path, window in session._windows.items()}
    control = session._control_window
    return {
        "windows": windows,
        "control": (control.next, control._run, control._bits),
        "generation": session.generation,
        "keys": (id(session._send), id(session._receive), id(session._next_receive)),
        "phase": session._phase,
    }


# -- both directions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", Suite)
@pytest.mark.parametrize("flags", [0, IMMEDIATE])
@pytest.mark.parametrize("count", [1, 5, 40])
def test_seal_data__is_inverted_and_hides_payload_and_immediate(suite: Suite, flags: int, count: int) -> None:
    one, other = pair(suite=suite)
    payloads = [bytes([number]) * 100 for number in range(count)]
    plain = plain_headers(count, path=3, sequence=7, flags=flags, message=9, segment=100)
    for index, packet in enumerate(seal(one, payloads, sequence=7, path=3, flags=flags)):
        assert payloads[index] not in packet.payload
        assert (b"\xab\xcd\x12\x34" in packet.header) is not flags
        assert unseal(other, packet) == (plain[index * HEADER_BYTES : (index + 1) * HEADER_BYTES], payloads[index])


def test_seal_control__is_inverted_and_hides_the_packet() -> None:
    one, other = pair()
    data = one.seal_control(CLOSE, context=CONTEXT, now=0.0)
    assert CLOSE not in data
    assert other.open_control_untrusted(data, now=0.0) == CLOSE


def test_immediates__differ_from_message_to_message_and_not_within_one() -> None:
    one, _ = pair()
    first, again = seal(one, PAYLOADS[:2], flags=IMMEDIATE)
    (other,) = seal(one, PAYLOADS[:1], sequence=5, flags=IMMEDIATE, message=10)
    assert first.header[36:40] == again.header[36:40] != other.header[36:40]


@pytest.mark.parametrize("count", [1, 20])
def test_immediates__of_aborted_packets_are_readable_reasons(count: int) -> None:
    """They would be encrypted like the immediate: both, and the reason, tell the immediate."""
    one, other = pair()
    payloads = [b""] * count
    found = seal(one, payloads, flags=IMMEDIATE | ABORTED)
    assert {packet.header[36:40] for packet in found} == {b"\xab\xcd\x12\x34"}
    first, *rest = found
    opened = unseal(other, first)
    assert opened is not None
    assert opened[0] == first.header
    kept, headers, _ = open_train(other, rest, size=HEADER_BYTES + TAG_BYTES) if rest else (0, b"", b"")
    assert kept == count - 1
    assert headers == b"".join(packet.header for packet in rest)


# -- forged ----------------------------------------------------------------------------------------------------------


def test_open_data__each_bit_flipped_once() -> None:
    one, other = pair()
    first, second = seal(one, PAYLOADS[:2], flags=IMMEDIATE)
    assert unseal(other, first)
    before = state(other)
    for bit in range(
        16,  # what has another version or type does not get here
        8 * len(second.datagram),
    ):
        forged, replayed = other.forged, other.replayed
        assert unseal(other, second.flipped(bit)) is None, bit
        assert (other.forged - forged) + (other.replayed - replayed) == 1, bit
        assert state(other) == before, bit
    assert unseal(other, second) is not None


def test_open_control__each_bit_flipped_once() -> None:
    one, other = pair()
    assert other.open_control_untrusted(one.seal_control(CLOSE, context=CONTEXT, now=0.0), now=0.0)
    data = one.seal_control(CLOSE, context=CONTEXT, now=0.0)
    before = state(other)
    for bit in range(8 * len(data)):
        forged = bytearray(data)
        forged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PacketError):
            other.open_control_untrusted(bytes(forged), now=0.0)
        assert state(other) == before, bit
    assert other.open_control_untrusted(data, now=0.0) == CLOSE


@given(st.binary(max_size=200))
def test_open_control__arbitrary_bytes(data: bytes) -> None:
    _, other = pair()
    with pytest.raises(PacketError):
        other.open_control_untrusted(data, now=0.0)


def test_open__what_was_sent_is_not_accepted_by_its_sender() -> None:
    """Reflection: each direction has keys of its own."""
    one, _ = pair()
    (packet,) = seal(one, PAYLOADS[:1])
    assert unseal(one, packet) is None
    with pytest.raises(PacketError):
        one.open_control_untrusted(one.seal_control(CLOSE, context=CONTEXT, now=0.0), now=0.0)


# -- replayed --------------------------------------------------------------------------------------------------------


def test_open__each_packet_once() -> None:
    one, other = pair()
    packets = seal(one, PAYLOADS)
    for packet in reversed(packets):
        assert unseal(other, packet) is not None
    assert [unseal(other, packet) for packet in packets] == [None] * len(packets)
    assert other.replayed == len(packets)
    data = one.seal_control(CLOSE, context=CONTEXT, now=0.0)
    other.open_control_untrusted(data, now=0.0)
    with pytest.raises(PacketError, match="received before"):
        other.open_control_untrusted(data, now=0.0)


FAR = (1, 100, REPLAY_WINDOW - 1, REPLAY_WINDOW, REPLAY_WINDOW + 1, 10 * REPLAY_WINDOW, 1 << 30, 1 << 50)


@given(st.data())
def test_replay_window__late_numbers_between_runs_of_any_length(data: st.DataObject) -> None:
    """As a list of what was received; whatever comes, no more than the window is kept."""
    window, received = ReplayWindow(), list[range]()
    for _ in range(data.draw(st.integers(1, 12))):
        first = window.next + data.draw(st.sampled_from((0, 0, 1, 7, *FAR)))
        count = data.draw(st.sampled_from((1, 2, 3, *FAR)))
        window.add_run(first, count)
        received.append(range(first, first + count))
        for behind in data.draw(st.lists(st.sampled_from((0, 1, 2, 3, 5, *FAR)) | st.integers(0, REPLAY_WINDOW))):
            number = window.next - 1 - behind
            if number < 0:
                continue
            expected = behind < REPLAY_WINDOW and not any(number in each for each in received)
            assert window.is_new(number) is expected, (behind, received)
            if expected:
                window.add(number)
                received.append(range(number, number + 1))
            assert window._bits.bit_length() <= REPLAY_WINDOW


# -- trains ----------------------------------------------------------------------------------------------------------


def open_train(session: Session, packets: list[Sealed], *, size: int) -> tuple[int, bytes, bytes]:
    """Return how many packets were accepted as expected ones, their headers and their payloads."""
    datagrams = b"".join(packet.datagram for packet in packets)
    out, headers = bytearray(len(datagrams)), bytearray(len(packets) * HEADER_BYTES)
    last_bytes = len(datagrams) - (len(packets) - 1) * size
    kept = session.open_train_untrusted(
        memoryview(datagrams),
        start=0,
        stride=size,
        size_bytes=size,
        count=len(packets),
        last_bytes=last_bytes,
        out=memoryview(out),
        headers=memoryview(headers),
    )
    written = kept * (size - HEADER_BYTES - TAG_BYTES) - (size - last_bytes if kept == len(packets) else 0)
    return kept, bytes(headers[: kept * HEADER_BYTES]), bytes(out[:written])


@pytest.mark.parametrize("count", [2, 7, 16, 17, 44])
@pytest.mark.parametrize("flags", [0, IMMEDIATE])
@pytest.mark.parametrize("last", [100, 33])
def test_open_train__as_one_by_one(count: int, flags: int, last: int) -> None:
    one, other = pair()
    payloads = [bytes([number]) * (100 if number < count else last) for number in range(count + 1)]
    confirm, *packets = seal(one, payloads, sequence=3, path=1, flags=flags)
    assert unseal(other, confirm)
    kept, headers, written = open_train(other, packets, size=HEADER_BYTES + 100 + TAG_BYTES)
    assert kept == count
    assert written == b"".join(payloads[1:])
    whole = plain_headers(count + 1, path=1, sequence=3, flags=flags, message=9, segment=100)
    assert headers == whole[HEADER_BYTES:]
    assert [unseal(other, packet) for packet in packets] == [None] * count, "all were received"


def test_open_train__of_several_messages() -> None:
    one, other = pair()
    packets = seal(one, PAYLOADS * 2, flags=IMMEDIATE) + seal(
        one, PAYLOADS * 2, sequence=10, flags=IMMEDIATE, message=8
    )
    assert unseal(other, packets[0])
    kept, headers, _ = open_train(other, packets[1:], size=HEADER_BYTES + 100 + TAG_BYTES)
    assert kept == 19
    assert {headers[at + 36 : at + 40] for at in range(0, len(headers), HEADER_BYTES)} == {b"\xab\xcd\x12\x34"}


@given(data=st.data())
def test_open_train__stops_where_a_packet_is_not_as_expected(data: st.DataObject) -> None:
    one, other = pair()
    first, *packets = seal(one, PAYLOADS * 4)
    assert unseal(other, first)
    broken = data.draw(st.integers(0, len(packets) - 1))
    bit = data.draw(st.integers(16, 8 * len(packets[0].datagram) - 1))
    packets[broken] = packets[broken].flipped(bit)
    kept, _, _ = open_train(other, packets, size=HEADER_BYTES + 100 + TAG_BYTES)
    assert kept in (broken, 0)  # 0: the first packet decides whether it is tried at all
    assert unseal(other, packets[broken]) is None
    assert all(unseal(other, packet) for packet in packets[broken + 1 :])


def rows(headers: bytes) -> list[bytes]:
    return [headers[at : at + HEADER_BYTES] for at in range(0, len(headers), HEADER_BYTES)]


OF_THE_TRAIN = {
    "version": (0, 0xFF),
    "type": (1, 0xFF),
    "key phase": (2, KEY_PHASE),
    "path": (3, 0xFF),
    "path sequence": (7, 0xFF),
    "path sequence, high": (4, 0xFF),
    "context, first byte": (8, 0xFF),
    "context, last byte": (15, 0xFF),
}
"""What packets of a train have in common, or counts up: where it is in the header, and its bits."""


@pytest.mark.parametrize(("at", "bits"), OF_THE_TRAIN.values(), ids=OF_THE_TRAIN)
@pytest.mark.parametrize("count", [2, 16, 17, 44])
def test_open_train__stops_at_a_header_that_lies_though_it_is_authentic(at: int, bits: int, count: int) -> None:
    """Its sender has keys, and seals what it likes: nothing from there on counts as received."""
    for liar in {1, count // 2, count - 1}:
        for bit in [1 << shift for shift in range(8) if bits >> shift & 1]:
            one, other = pair()
            confirm, *headers = rows(plain_headers(count + 1, path=1, sequence=0, flags=0, message=9, segment=100))
            lies = bytearray(headers[liar])
            lies[at] ^= bit
            headers[liar] = bytes(lies)
            sealed = seal_headers(one, [confirm, *headers], [bytes(100)] * (count + 1), path=1, sequence=0)
            assert unseal(other, sealed[0])
            kept, _, _ = open_train(other, sealed[1:], size=HEADER_BYTES + 100 + TAG_BYTES)
            assert kept == liar
            assert [unseal(other, packet) is None for packet in sealed[1 : liar + 1]] == [True] * liar, "received"
            assert all(unseal(other, packet) for packet in sealed[liar + 2 :]), "not received, and honest"


def test_open_train__what_a_message_may_choose_is_no_lie() -> None:
    """Opcode, immediate, PSN, message, length, offset, key: they may differ from one packet to the next."""
    one, other = pair()
    confirm, *headers = rows(plain_headers(21, path=1, sequence=0, flags=0, message=9, segment=100))
    for index, header in enumerate(headers):
        headers[index] = header[:2] + bytes([index % 4]) + header[3:16] + random.Random(index).randbytes(40)
    sealed = seal_headers(one, [confirm, *headers], [bytes(100)] * 21, path=1, sequence=0)
    assert unseal(other, sealed[0])
    kept, found, _ = open_train(other, sealed[1:], size=HEADER_BYTES + 100 + TAG_BYTES)
    assert kept == 20
    assert found == b"".join(headers)


def test_open_train__before_the_peer_is_confirmed_or_of_an_earlier_number() -> None:
    one, other = pair()
    packets = seal(one, PAYLOADS)
    size = HEADER_BYTES + 100 + TAG_BYTES
    assert open_train(other, packets, size=size)[0] == 0, "nothing has shown yet that the peer has the keys"
    assert unseal(other, packets[-1])
    assert open_train(other, packets, size=size)[0] == 0, "they were overtaken"


# -- nonces and keys -------------------------------------------------------------------------------------------------


def exchange(one: Session, other: Session, *, sequence: int, now: float) -> None:
    """A packet in each direction."""
    for sender, receiver in ((one, other), (other, one)):
        (packet,) = seal(sender, PAYLOADS[:1], sequence=sequence, now=now)
        assert unseal(receiver, packet, now=now)


def test_update__after_its_time_without_a_pause() -> None:
    one, other = pair()
    for number in range(6):
        now = number * (UPDATE_S + 1)
        exchange(one, other, sequence=number, now=now)
    assert one.generation == other.generation == 5
    assert one.forged == other.forged == 0


def test_update__not_before_a_packet_with_the_present_keys_has_arrived() -> None:
    """Else the ends could be two generations apart."""
    one, other = pair()
    seal(one, PAYLOADS[:1], now=UPDATE_S + 1)
    assert one.generation == 0, "nothing has arrived yet"
    exchange(one, other, sequence=1, now=2 * UPDATE_S)
    assert one.generation == other.generation == 1
    seal(one, PAYLOADS[:1], sequence=2, now=4 * UPDATE_S)
    seal(one, PAYLOADS[:1], sequence=3, now=6 * UPDATE_S)
    assert one.generation == 2


@pytest.mark.parametrize("late", [False, True])
def test_update__packets_that_were_overtaken(late: bool) -> None:  # noqa: FBT001 - parametrised
    one, other = pair()
    exchange(one, other, sequence=0, now=0.0)
    other.rtt_s = 0.3
    (overtaken,) = seal(one, PAYLOADS[:1], sequence=1, now=0.0)
    one.update(now=0.0)
    (newer,) = seal(one, PAYLOADS[1:2], sequence=2, now=0.0)
    assert newer.header[2] & KEY_PHASE
    found = unseal(other, newer, now=0.0)
    assert found is not None
    assert not found[0][2] & KEY_PHASE, "it is not part of the packet in plain text"
    assert other.generation == 1
    assert (unseal(other, overtaken, now=1.0 if late else 0.89) is None) is late
    assert other.generation == 1


def test_update__old_keys_of_an_end_that_knows_no_round_trip() -> None:
    """One that sends no data: what waits in its socket is authentic."""
    one, other = pair()
    exchange(one, other, sequence=0, now=0.0)
    waiting = seal(one, PAYLOADS, sequence=1, now=UPDATE_S)
    data = other.seal_control(CLOSE, context=CONTEXT, now=UPDATE_S)  # starts the update
    assert other.generation == 1
    assert all(unseal(other, packet, now=UPDATE_S + 0.4) for packet in waiting)
    assert one.open_control_untrusted(data, now=UPDATE_S)
    assert unseal(other, *seal(one, PAYLOADS[:1], sequence=9, now=UPDATE_S), now=UPDATE_S)
    assert other.forged == 0


@pytest.mark.sources  # replaces a constant
def test_update__after_so_many_forged_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UPDATE_FORGERIES", 10)
    one, other = pair()
    other._forged_limit = 10
    exchange(one, other, sequence=0, now=0.0)
    (packet,) = seal(one, PAYLOADS[:1], sequence=1)
    for bit in range(25):
        assert unseal(other, packet.flipped(800 + bit)) is None
    exchange(other, one, sequence=1, now=0.0)
    assert other.generation == 1
    exchange(other, one, sequence=2, now=0.0)
    assert other.generation == 1, "counted from the last update on"


def test_update__old_keys_are_forgotten() -> None:
    one, other = pair()
    exchange(one, other, sequence=0, now=0.0)
    one.update(now=0.0)
    exchange(one, other, sequence=1, now=0.1)
    exchange(one, other, sequence=2, now=10.0)
    assert [session._old_receive for session in (one, other)] == [None, None]


@given(
    st.lists(st.sampled_from(["data", "control", "update", "back"]), min_size=1, max_size=60),
    st.randoms(use_true_random=False),
)
def test_update__packets_are_reordered_over_it(steps: list[str], rng: Any) -> None:
    """None that is authentic and in time is lost, and none is accepted twice."""
    one, other = pair()
    other.rtt_s = one.rtt_s = 1.0
    flying: list[Sealed] = []
    sequence = back = 0
    now = 0.0
    for step in steps:
        if step == "data":
            flying += seal(one, PAYLOADS[:1], sequence=sequence, now=now)
            sequence += 1
        elif step == "control":
            data = one.seal_control(CLOSE, context=CONTEXT, now=now)
            assert other.open_control_untrusted(data, now=now) == CLOSE
        elif step == "back":
            (packet,) = seal(other, PAYLOADS[:1], sequence=back, now=now)
            back += 1
            assert unseal(one, packet, now=now)
        elif one._is_confirmed:
            now += OLD_KEYS_RTTS  # the keys before are gone
            one.update(now=now)
            flying += seal(one, PAYLOADS[:1], sequence=sequence, now=now)
            sequence += 1
            rng.shuffle(flying)
            assert all(unseal(other, packet, now=now) for packet in flying)
            assert not any(unseal(other, packet, now=now) for packet in flying)
            flying = []
    assert one.forged == other.forged == 0
