"""srd.io.secure_rx over loopback: authentic data lands byte for byte, and nothing else takes memory or is described."""

from __future__ import annotations

import random
import time

import pytest

from srd.io.rx_buffers import SUPER_BYTES
from srd.io.rx_memory import SLOTS, RxBatch
from srd.proto.events import ReceiveResult
from srd.proto.wire.control import Probe
from srd.proto.wire.data import HEADER_BYTES, VERSION, PacketType
from srd.proto.wire.protected import TAG_BYTES
from srd.secure.packets import Suite
from srd.secure.session import Session
from tests.srd.io.exchange import Receiver, Source, content, source
from tests.srd.secure.sessions import CONTEXT, Sealed, pair, plain_headers, seal, seal_headers, unseal

SEED = 14
SIZE = HEADER_BYTES + 1000 + TAG_BYTES
"""Datagrams of the trains made by hand."""
OTHER_CONTEXT = CONTEXT + 1


def now_pair() -> tuple[Session, Session]:
    return pair(now=time.monotonic())


def confirmed_pair() -> tuple[Session, Session]:
    """Sessions of which the second has received packet 0 of path 0: trains that follow take the fast path."""
    one, other = now_pair()
    (first,) = seal(one, [b"!"])
    assert unseal(other, first, now=time.monotonic())
    return one, other


def other_pair() -> tuple[Session, Session]:
    """Those of another peer."""
    now, secrets = time.monotonic(), (bytes([7]) * 32, bytes([8]) * 32)
    return (
        Session(send_secret=secrets[0], receive_secret=secrets[1], suite=Suite.AES_256_GCM, now=now),
        Session(send_secret=secrets[1], receive_secret=secrets[0], suite=Suite.AES_256_GCM, now=now),
    )


def payloads(count: int, *, seed: int = SEED) -> list[bytes]:
    whole = content(1000 * count, seed=seed)
    return [whole[at : at + 1000] for at in range(0, len(whole), 1000)]


def train(packets: list[Sealed]) -> bytes:
    return b"".join(packet.datagram for packet in packets)


def landed(two: Receiver) -> bytes:
    """All payload in the order in which it was described."""
    return b"".join(two.payload(burst) for burst in two.bursts)


# -- authentic data --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gro", [True, False], ids=["GRO", "no GRO"])
@pytest.mark.parametrize("segment_bytes", [1, 64, 1000, 1400, 8900, 30_000, 65_435])
def test_receive__messages_byte_for_byte(segment_bytes: int, *, gro: bool) -> None:
    one_session, two_session = now_pair()
    sizes = [max(min(40 * segment_bytes, 300_000) - message, 0) for message in range(12)]
    with source(protection=one_session) as one, Receiver(protections={CONTEXT: two_session}, chunks=60) as two:
        if not gro:
            two.without_gro()
        for message, size in enumerate(sizes):
            packets = one.send(two.address, content(size, seed=message), segment_bytes=segment_bytes, message=message)
            two.receive(packets=two.packets + packets)
        for message, size in enumerate(sizes):  # all are held: nothing was overwritten
            assert two.message(message) == content(size, seed=message)
        assert two.queue.bytes_copied == 0, "decrypting is the copy"


def test_receive__many_single_datagrams_in_small_chunks() -> None:
    """More than a chunk of them come with one system call."""
    one_session, two_session = confirmed_pair()
    whole = content(100 * 8900, seed=SEED)
    pieces = [whole[at : at + 8900] for at in range(0, len(whole), 8900)]
    sealed = seal(one_session, pieces, sequence=1)
    with (
        source() as one,
        Receiver(protections={CONTEXT: two_session}, chunk_bytes=2 * SUPER_BYTES, chunks=SLOTS + 20) as two,
    ):
        two.without_gro()
        for packet in sealed:
            one.socket.sendto(packet.datagram, two.address)
        two.receive(packets=len(sealed))
        assert landed(two) == whole
        assert {burst.segment_bytes for burst in two.bursts} == {8900}


def test_receive__single_datagrams_of_two_sources_are_described_apart() -> None:
    """A peer whose NAT has replaced a mapping: the same path, and numbers that continue."""
    one_session, two_session = confirmed_pair()
    pieces = payloads(40)
    sealed = seal(one_session, pieces, sequence=1)
    with source() as one, source() as other, Receiver(protections={CONTEXT: two_session}) as two:
        two.without_gro()
        sources = [one if number % 10 < 5 else other for number in range(40)]
        for packet, each in zip(sealed, sources, strict=True):
            each.socket.sendto(packet.datagram, two.address)
        two.receive(packets=40)
        assert landed(two) == b"".join(pieces)
        found = [burst.address for burst in two.bursts for _ in range(burst.count)]
        assert found == [each.socket.getsockname() for each in sources]


def forge(attacker: Source, two: Receiver, rng: random.Random) -> None:
    """Send data that is not authentic, under a true context or an unknown one, as one datagram or as a train."""
    head = bytes([VERSION, PacketType.DATA, rng.choice((0, 0x80)), rng.choice((0, 3, 200))]) + rng.randbytes(4)
    size, count = rng.choice((56, 60, 71, 72, 73, 500, 1472)), rng.randint(1, 20)
    context = rng.choice((CONTEXT, OTHER_CONTEXT, 77)).to_bytes(8, "big")
    datagrams = b"".join(head + context + rng.randbytes(size - 16) for _ in range(count))
    attacker.send_train(two.address, datagrams[: len(datagrams) - rng.choice((0, 0, 1, 30))], segment_bytes=size)


@pytest.mark.parametrize("seed", range(4))
def test_receive__two_senders_of_all_sizes_and_an_attacker(seed: int) -> None:
    """All messages of a turn are held at once, so each byte is checked."""
    rng = random.Random(seed)
    (one_session, two_session), (other_session, its_session) = now_pair(), other_pair()
    protections = {CONTEXT: two_session, OTHER_CONTEXT: its_session}
    with (
        source(protection=one_session) as one,
        source(protection=other_session) as other,
        source() as attacker,
        Receiver(protections=protections, chunks=SLOTS + 60) as two,
    ):
        other.context = OTHER_CONTEXT
        for turn in range(6):
            sent: dict[int, bytes] = {}
            packets = 0
            for message in range(12):
                sender, segment = rng.choice((one, other)), rng.choice((1, 100, 520, 1400, 8900, 65_000))
                sent[message] = content(
                    rng.randint(0, min(30 * segment, 40_000)), seed=seed << 16 | turn << 8 | message
                )
                packets += sender.send(two.address, sent[message], segment_bytes=segment, message=message)
                forge(attacker, two, rng)
                if rng.random() < 0.5:  # else several messages, and forged ones, are in one batch
                    two.receive(packets=packets)
            two.receive(packets=packets)
            for message, payload in sent.items():
                assert two.message(message) == payload, (turn, message)
            two.release()
    assert two_session.forged


def test_receive__trains_of_one_peer_that_lie_back_to_back_are_one_datagram() -> None:
    one_session, two_session = now_pair()
    with source(protection=one_session) as one, Receiver(protections={CONTEXT: two_session}) as two:
        payload = content(200_000, seed=SEED)
        packets = one.send(two.address, payload, segment_bytes=1000)
        two.receive(packets=packets)
        assert two.message(0) == payload
        assert len(two.bursts) == 1


def test_receive__after_a_key_update_within_a_train() -> None:
    one_session, two_session = confirmed_pair()
    pieces = payloads(20)
    before = seal(one_session, pieces[:10], sequence=1)
    one_session.update(now=time.monotonic())
    after = seal(one_session, pieces[10:], sequence=11)
    with source() as one, Receiver(protections={CONTEXT: two_session}) as two:
        one.send_train(two.address, train(before + after), segment_bytes=SIZE)
        two.receive(packets=20)
        assert landed(two) == b"".join(pieces)
        assert {burst.flags for burst in two.bursts} == {0}
        assert two_session.generation == 1


# -- what is not authentic -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confirmed", [True, False], ids=["fast path", "one by one"])
@pytest.mark.parametrize("broken", [0, 1, 7, 19])
def test_receive__a_forged_packet_within_a_train(broken: int, *, confirmed: bool) -> None:
    """The others arrive, and lie as if it had not been there."""
    one_session, two_session = confirmed_pair() if confirmed else now_pair()
    pieces = payloads(20)
    packets = seal(one_session, pieces, sequence=1)
    packets[broken] = packets[broken].flipped(8 * HEADER_BYTES + 3)
    with source() as one, Receiver(protections={CONTEXT: two_session}) as two:
        one.send_train(two.address, train(packets), segment_bytes=SIZE)
        two.receive(packets=19)
        assert landed(two) == b"".join(pieces[:broken] + pieces[broken + 1 :])
        assert two_session.forged >= 1


def test_receive__forged_and_unknown_data_takes_no_memory() -> None:
    """What follows lies directly behind what went before."""
    one_session, two_session = confirmed_pair()
    pieces = payloads(2)
    with source() as attacker, source() as one, Receiver(protections={CONTEXT: two_session}) as two:
        rng = random.Random(SEED)
        for sequence, (packet,) in enumerate(
            [seal(one_session, [piece], sequence=1 + at) for at, piece in enumerate(pieces)]
        ):
            one.send_train(two.address, packet.datagram, segment_bytes=SIZE)
            two.receive(packets=sequence + 1)
            for number in range(1500):
                forge(attacker, two, rng)
                if number % 20 == 19:
                    while (batch := two.queue.receive(two.socket)) is not None:
                        assert not batch.datagrams
                        assert not batch.no_memory
                        two.queue.commit(batch, ReceiveResult())
        first, second = two.bursts
        assert second.payload_offset == first.payload_offset + 1000
        assert landed(two) == b"".join(pieces)


def test_receive__what_the_core_does_not_keep_is_reused_while_memory_is_short() -> None:
    one_session, two_session = now_pair()
    starts = set()
    with source(protection=one_session) as one, Receiver(protections={CONTEXT: two_session}) as two:
        for message in range(50):
            one.send(two.address, bytes(60_000), segment_bytes=1000, message=message)
            batch = two.receive_batch()
            starts.add(batch.datagrams[0].payload_offset)
            batch.low_region = 0
            two.queue.commit(batch, ReceiveResult())
    assert len(starts) == 1


@pytest.mark.parametrize("length", [0, 1, 2, 15, 16, 55, 56, 57, 71, 72, 73])
@pytest.mark.parametrize("kind", list(PacketType))
def test_receive__short_datagrams(kind: PacketType, length: int) -> None:
    _, two_session = confirmed_pair()
    datagram = (bytes([VERSION, kind]) + bytes(6) + CONTEXT.to_bytes(8, "big") + bytes(100))[:length]
    with source() as attacker, Receiver(protections={CONTEXT: two_session}) as two:
        attacker.socket.sendto(datagram, two.address)
        batch = two.receive_batch()
        assert not batch.datagrams
        is_data = kind is PacketType.DATA and length >= HEADER_BYTES
        assert len(batch.controls) == (length > 0 and not is_data)


@pytest.mark.parametrize("last", [1, 16, 40, 56, 71])
def test_receive__a_train_whose_last_datagram_is_too_short_for_data(last: int) -> None:
    one_session, two_session = confirmed_pair()
    pieces = payloads(5)
    datagrams = (
        train(seal(one_session, pieces, sequence=1))
        + bytes([VERSION, PacketType.DATA])
        + bytes(last - 2 if last > 1 else 0)
    )
    with source() as one, Receiver(protections={CONTEXT: two_session}) as two:
        one.send_train(two.address, datagrams, segment_bytes=SIZE)
        two.receive(packets=5)
        assert landed(two) == b"".join(pieces)


def test_receive__control_packets_and_data_of_two_peers_in_one_train() -> None:
    """The kernel joins what has the same length and comes over one path."""
    (one_session, two_session), (other_session, its_session) = confirmed_pair(), other_pair()
    pieces, theirs = payloads(4), payloads(2, seed=99)
    mine = seal(one_session, pieces, sequence=1)
    other = seal(other_session, theirs, sequence=0)
    for packet in other:
        packet.header = packet.header[:8] + OTHER_CONTEXT.to_bytes(8, "big") + packet.header[16:]
    control = Probe(CONTEXT, 5, 0, 0, 0, size_bytes=SIZE).encode()
    assert len(control) == SIZE
    datagrams = [mine[0].datagram, control, mine[1].datagram, other[0].datagram, mine[2].datagram, control]
    datagrams += [mine[3].datagram]
    with source() as one, Receiver(protections={CONTEXT: two_session, OTHER_CONTEXT: its_session}) as two:
        one.send_train(two.address, b"".join(datagrams), segment_bytes=SIZE)
        two.receive(packets=4, controls=2)
        assert landed(two) == b"".join(pieces), "the other's context was changed under way"
        assert [data for data, _, _ in two.controls] == [control, control]
        assert its_session.forged == 1


# -- what is authentic, and lies -----------------------------------------------------------------------------------


LIES = {
    "type": (1, PacketType.PROTECTED.to_bytes(1, "big")),
    "path": (3, b"\x05"),
    "path sequence": (4, bytes(4)),
    "context of another peer": (8, OTHER_CONTEXT.to_bytes(8, "big")),
    "context of nobody": (8, bytes(8)),
}
"""Fields of a header that say whose packet it is, and which: where they are, and what a liar writes there."""


@pytest.mark.parametrize(("at", "lie"), LIES.values(), ids=LIES)
@pytest.mark.parametrize("count", [2, 20], ids=["few", "many"])
@pytest.mark.parametrize("confirmed", [True, False], ids=["fast path", "one by one"])
def test_receive__a_peer_that_lies_in_a_train_of_its_own(at: int, lie: bytes, count: int, *, confirmed: bool) -> None:
    """It has sealed the train, so each tag is right: nothing may come of the lie, at its own peer or at another's."""
    (one_session, two_session), (_, its_session) = confirmed_pair() if confirmed else now_pair(), other_pair()
    pieces = payloads(count)
    whole = plain_headers(count, path=0, sequence=1, flags=0, message=9, segment=1000)
    headers = [whole[start : start + HEADER_BYTES] for start in range(0, len(whole), HEADER_BYTES)]
    liar = count // 2
    headers[liar] = headers[liar][:at] + lie + headers[liar][at + len(lie) :]
    sealed = seal_headers(one_session, headers, pieces, path=0, sequence=1)
    with source() as one, Receiver(protections={CONTEXT: two_session, OTHER_CONTEXT: its_session}) as two:
        one.send_train(two.address, train(sealed), segment_bytes=SIZE)
        two.receive(packets=count - 1)
        two.drain()
        assert landed(two) == b"".join(pieces[:liar] + pieces[liar + 1 :])
        assert {(burst.context, burst.path) for burst in two.bursts} == {(CONTEXT, 0)}
        assert not its_session._windows, "nothing counts as received of the other peer"


def test_receive__what_two_peers_sent_is_described_apart() -> None:
    """Their payloads lie back to back, and they may share an address: each datagram has the context of its keys."""
    (one_session, two_session), (other_session, its_session) = confirmed_pair(), other_pair()
    mine = seal(one_session, payloads(4), sequence=1)
    whole = plain_headers(4, path=0, sequence=0, flags=0, message=9, segment=1000)
    headers = [
        whole[at : at + 8] + OTHER_CONTEXT.to_bytes(8, "big") + whole[at + 16 : at + HEADER_BYTES]
        for at in range(0, len(whole), HEADER_BYTES)
    ]
    theirs = seal_headers(other_session, headers, payloads(4), path=0, sequence=0)
    protections = {CONTEXT: two_session, OTHER_CONTEXT: its_session}
    with source() as one, Receiver(protections=protections) as two:
        one.send_train(two.address, train(mine + theirs), segment_bytes=SIZE)
        batch = two.receive_batch()
        found = [(each.context, each.count, bytes(each.headers[8:16])) for each in batch.datagrams]
        assert found == [(CONTEXT, 4, mine[0].header[8:16]), (OTHER_CONTEXT, 4, theirs[0].header[8:16])]
        two.record(batch)


# -- short of memory -------------------------------------------------------------------------------------------------


def test_receive__without_memory_only_authentic_data_is_reported() -> None:
    one_session, two_session = confirmed_pair()
    chunk_bytes = 512 << 10
    with (
        source(protection=one_session) as one,
        source() as attacker,
        Receiver(protections={CONTEXT: two_session}, chunks=3, chunk_bytes=chunk_bytes) as two,
    ):
        one.psn = 1
        sent = 0
        while not (batch := _send_more(one, two)).no_memory:
            two.record(batch)
            sent += 1
            assert sent < 100
        assert batch.no_memory == {CONTEXT}
        assert not batch.datagrams
        held = landed(two)
        forge_full(attacker, two)
        batch = two.receive_batch()
        assert not batch.no_memory, "what is not authentic is not reported to anybody"
        assert landed(two) == held == content(50_000, seed=SEED) * sent
        two.release()
        two.queue.receive(two.socket)
        two.record(_send_more(one, two))
        assert landed(two) == content(50_000, seed=SEED)


def _send_more(one: Source, two: Receiver) -> RxBatch:
    one.send(two.address, content(50_000, seed=SEED), segment_bytes=50_000)
    return two.receive_batch()


def forge_full(attacker: Source, two: Receiver) -> None:
    datagram = bytes([VERSION, PacketType.DATA, 0, 3]) + bytes(4) + CONTEXT.to_bytes(8, "big") + bytes(50_000)
    attacker.socket.sendto(datagram, two.address)


def test_receive__a_header_alone_takes_no_memory() -> None:
    """Reads, and the end of aborted messages, which frees memory."""
    one_session, two_session = confirmed_pair()
    with (
        source(protection=one_session) as one,
        Receiver(protections={CONTEXT: two_session}, chunks=3) as two,
    ):
        one.psn = 1
        while not (batch := _send_more(one, two)).no_memory:
            two.record(batch)
        one.send(two.address, b"", segment_bytes=1)
        batch = two.receive_batch()
        assert not batch.no_memory
        assert [(each.count, each.payload_bytes) for each in batch.datagrams] == [(1, 0)]
