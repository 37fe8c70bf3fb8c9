"""srd.io.rx over loopback: where payload lands, the slow path and its counter, floods, an empty pool."""

from __future__ import annotations

import random
import socket
import time

import numpy as np
import pytest

from srd.io.rx import LAYOUT_BYTES
from srd.io.rx_memory import SLOTS, RxBatch
from srd.io.socket import ECT_0
from srd.proto.wire.control import Probe
from srd.proto.wire.data import ABORTED, HEADER_BYTES, write_headers
from tests.srd.io.exchange import Receiver, Source, content, source, wait_readable

SEED = 12
CE = 3


def set_tos(sock: socket.socket, tos: int, *, family: socket.AddressFamily) -> None:
    """Have the socket send with these TOS bits, as a marking switch sets them."""
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)


def raw_packets(one: Source, two: Receiver, payload: bytes, *, segment_bytes: int, message: int = 0) -> bytes:
    """Return the concatenated datagrams of a message, as GSO takes them."""
    burst = one.burst(
        two.address,
        message=message,
        size_bytes=len(payload),
        segment_bytes=segment_bytes,
    )
    headers = np.zeros((burst.count, HEADER_BYTES), np.uint8)
    write_headers(burst, out=headers.reshape(-1).data)
    pieces = [payload[index * segment_bytes : (index + 1) * segment_bytes] for index in range(burst.count)]
    return b"".join(headers[index].tobytes() + piece for index, piece in enumerate(pieces))


# -- the fast path --------------------------------------------------------------------------------------------------


def test_receive__trains_of_one_batch_are_one_datagram_once_batches_are_full() -> None:
    """Consecutive slots are contiguous in memory from the second batch on."""
    with source() as one, Receiver(chunk_bytes=1 << 20) as two:
        for message in range(3):
            payload = content(8916 * 28, seed=message)
            one.send(two.address, payload, segment_bytes=8916, message=message)
            batch = receive_batch(two)
            assert [arrival.count for arrival in batch.datagrams] == ([28] if message else [7] * 4)
            assert two.message(message) == payload
        assert two.queue.bytes_copied == 0


def test_receive__trains_that_are_not_contiguous_are_separate_datagrams() -> None:
    """Another sender, an incomplete train, more than the longest burst."""
    with source() as one, source() as other, Receiver(datagram_bytes=1472) as two:
        for message in (0, 3):
            expected = []
            for turn, (sender, packets) in enumerate([(one, 44), (one, 44), (other, 44), (one, 10), (one, 44)]):
                sender.send(two.address, content(1416 * packets, seed=turn), segment_bytes=1416, message=message + turn)
                expected.append(packets)
            batch = receive_batch(two)
            counts = [arrival.count for arrival in batch.datagrams]
            assert counts == (expected if not message else [88, 44, 10, 44])
            two.release()


def send_bursts(
    one: Source, two: Receiver, payload: bytes, cuts: list[int], *, skip: int = 0, later_us: int = 0
) -> None:
    """Send a message as bursts of so many packets of 8,916 bytes; before each but the first, skip PSNs or be later."""
    at = 0
    one.fill(payload)
    for number, packets in enumerate(cuts):
        one.psn += skip if number else 0
        burst = one.burst(
            two.address, message=0, offset=at, size_bytes=8916 * packets, length=len(payload), segment_bytes=8916
        )
        burst.sent_us += later_us if number else 0
        at += 8916 * packets
        one.transmitter.add(burst)
    assert one.transmitter.flush(one.socket)


def receive_batch(two: Receiver) -> RxBatch:
    """Receive a batch, and hold it."""
    batch = two.receive_batch()
    two.record(batch)
    return batch


def test_receive__headers_of_a_burst_are_compared_once_although_its_payload_lies_in_several_chunks() -> None:
    payload = content(8916 * 56, seed=SEED)
    with source() as one, Receiver(chunk_bytes=256 << 10) as two:
        for _ in range(2):  # batches lie back to back from the second one on
            two.release()
            send_bursts(one, two, payload, [56])
            batch = receive_batch(two)
        assert len(batch.datagrams) > 1
        assert all(arrival.is_one_burst for arrival in batch.datagrams)
        assert two.packets == 56
        assert two.message(0) == payload


@pytest.mark.parametrize(("skip", "later_us", "counts"), [(5, 0, [14, 14]), (0, 9, [14, 14]), (0, 0, [28])])
def test_receive__another_burst_is_told_apart(skip: int, later_us: int, counts: list[int]) -> None:
    """By its PSNs, or by its time of sending. What only continues the first one is the same burst."""
    payload = content(8916 * 28, seed=SEED)
    with source() as one, Receiver(chunk_bytes=1 << 20) as two:
        for _ in range(2):
            two.release()
            send_bursts(one, two, payload, [14, 14], skip=skip, later_us=later_us)
            batch = receive_batch(two)
        assert [burst.count for burst in two.bursts] == counts
        assert len(batch.datagrams) == (2 if later_us else 1)
        assert two.message(0) == payload


def test_receive__a_burst_that_skips_psns_in_another_chunk_is_told_apart() -> None:
    payload = content(8916 * 56, seed=SEED)
    with source() as one, Receiver(chunk_bytes=256 << 10) as two:
        for _ in range(2):
            two.release()
            send_bursts(one, two, payload, [14, 42], skip=5)
            batch = receive_batch(two)
        assert not any(arrival.is_one_burst for arrival in batch.datagrams)
        assert two.bursts[0].count == 14
        assert two.packets == 56
        assert two.message(0) == payload


def test_receive__a_short_datagram_after_a_full_train_is_complete() -> None:
    with source() as one, Receiver() as two:
        for message in range(3):
            payload = content(8916 * 7 + 500 + message, seed=message)
            datagrams = raw_packets(one, two, payload, segment_bytes=8916, message=message)
            one.send_train(two.address, datagrams, segment_bytes=8972)
            one.send(two.address, content(8916 * 14, seed=9), segment_bytes=8916, message=10 + message)
            two.receive(packets=22 * (message + 1))
            assert two.message(message) == payload
            assert two.message(10 + message) == content(8916 * 14, seed=9)


def test_receive__reports_whether_the_socket_may_hold_more() -> None:
    with source() as one, Receiver() as two:
        for message in range(SLOTS + 1):
            one.send(two.address, b"x", segment_bytes=8916, message=message)
        assert [receive_batch(two).full for _ in range(2)] == [True, False]
        assert two.packets == SLOTS + 1


def test_receive__converts_the_kernels_time_to_the_monotonic_clock() -> None:
    with source() as one, Receiver() as two:
        before = time.monotonic()
        one.send(two.address, b"x" * 3000, segment_bytes=1000)
        one.socket.sendto(Probe(1, 6, 0, 0, 0).encode(), two.address)
        wait_readable(two.socket)
        sent = time.monotonic()
        two.receive(packets=3, controls=1)
        times = [two.bursts[0].received_at, two.controls[0][2]]
        assert all(before - 0.05 <= at <= sent + 0.05 for at in times), (before, times, sent)


# -- the slow path --------------------------------------------------------------------------------------------------


def send_until_kept(one: Source, two: Receiver, *, segment_bytes: int, size_bytes: int, first: int = 0) -> None:
    """Send messages of 40 packets until `size_bytes` are kept, and check every byte."""
    payload = content(40 * segment_bytes - 5, seed=SEED)
    for message in range(first, first + -(-size_bytes // len(payload))):
        one.send(two.address, payload, segment_bytes=segment_bytes, message=message)
        two.receive(packets=40)
        assert two.message(message) == payload
        two.release()


def test_receive__the_layout_adapts_to_the_size_of_kept_packets() -> None:
    with source() as one, Receiver(datagram_bytes=8972) as two:
        send_until_kept(one, two, segment_bytes=1400, size_bytes=LAYOUT_BYTES + 100_000)
        assert two.ring.payload_bytes == 1400
        copied = two.queue.bytes_copied
        assert LAYOUT_BYTES <= copied <= LAYOUT_BYTES + 100_000
        send_until_kept(one, two, segment_bytes=1400, size_bytes=1 << 20, first=1000)
        assert two.queue.bytes_copied == copied, "nothing is copied any more"


def test_receive__packets_that_are_not_kept_change_no_layout() -> None:
    """Data of an open peer that the core refuses: forged packets or duplicates, for example."""
    with source() as one, Receiver(datagram_bytes=8972) as two:
        payload = content(40 * 1400, seed=SEED)
        for message in range(2 * LAYOUT_BYTES // len(payload)):
            one.send(two.address, payload, segment_bytes=1400, message=message)
            wait_readable(two.socket)
            while two.queue.receive(two.socket) is not None:
                pass
        assert two.ring.payload_bytes == 8916


def test_receive__data_for_no_open_peer_is_dropped_before_memory_is_allocated() -> None:
    """Full trains, trains of another size, small ones, single datagrams."""
    with source() as one, Receiver(datagram_bytes=8972, contexts=(1, 2)) as two:
        cursors = two.buffers.cursors.copy()
        for message, segment_bytes in enumerate((8916, 1400, 500, 100, 8000) * 20):
            one.send(two.address, content(5 * segment_bytes, seed=message), segment_bytes=segment_bytes)
        one.socket.sendto(Probe(9, 6, 0, 0, 0).encode(), two.address)
        two.receive(controls=1)
        assert two.bursts == []
        assert two.buffers.cursors == cursors
        assert (two.queue.bytes_copied, two.queue.refused_packets) == (0, 0)


def test_receive__a_train_of_which_one_packet_is_for_an_open_peer() -> None:
    with source() as one, Receiver(datagram_bytes=1056, contexts=(0x1122334455667788,)) as two:
        packets = [
            bytearray(raw_packets(one, two, content(1000, seed=n), segment_bytes=1000, message=n)) for n in (1, 2)
        ]
        packets[0][8:16] = bytes(8)  # of no open peer
        one.send_train(two.address, b"".join(packets), segment_bytes=1056)
        two.receive(packets=2)
        assert two.message(2) == content(1000, seed=2)


@pytest.mark.parametrize("segment_bytes", [1000, 1400, 100], ids=["whole trains", "another size", "small"])
def test_receive__a_control_packet_that_ends_a_train_is_received(segment_bytes: int) -> None:
    """GRO appends a shorter datagram of the same socket: an ack, for example."""
    probe = Probe(5, 6, 0, 0, 0, size_bytes=HEADER_BYTES + 1).encode()
    with source() as one, Receiver(datagram_bytes=1056) as two:
        whole = raw_packets(one, two, content(3 * segment_bytes, seed=SEED), segment_bytes=segment_bytes)
        one.send_train(two.address, whole + probe, segment_bytes=segment_bytes + HEADER_BYTES)
        two.receive(packets=3, controls=1)
        assert two.message(0) == content(3 * segment_bytes, seed=SEED)
        assert two.controls[0][0] == probe


@pytest.mark.parametrize("seed", range(6))
def test_receive__random_sizes(seed: int) -> None:
    """The layout changes meanwhile. All messages are held at once, so each byte is checked."""
    rng = random.Random(seed)
    sizes = rng.sample([8916, 1416, 1400, 1024 - HEADER_BYTES, 967, 520, 600, 30_000, 65_451], 3)
    with source() as one, source() as other, Receiver(datagram_bytes=8972, chunks=SLOTS + 60) as two:
        for turn in range(12):
            sent: dict[int, bytes] = {}
            if turn in (4, 8):  # as if most of the kept bytes had that size
                two.ring._expect(max(sizes[turn // 4 - 1], 1024) + HEADER_BYTES)
            while sum(map(len, sent.values())) < 700_000:
                sender, segment_bytes, message = rng.choice((one, other)), rng.choice(sizes), len(sent)
                sent[message] = content(rng.randrange(1, min(64 * segment_bytes, 250_000)), seed=rng.randrange(1 << 30))
                sender.send(two.address, sent[message], segment_bytes=segment_bytes, message=message)
            two.drain()
            for message, payload in sent.items():
                assert two.message(message) == payload, (seed, turn, message)
            two.release()


@pytest.mark.parametrize("small_bytes", [0, 1, 100, 500])
def test_receive__small_trains_do_not_truncate_later_large_ones(small_bytes: int) -> None:
    """After a train of small messages the slots must still take a whole super-datagram (64 KiB)."""
    payload = content(8916 * 7, seed=SEED)
    with source() as one, Receiver(datagram_bytes=8972) as two:
        small = b"".join(
            raw_packets(one, two, content(small_bytes, seed=message), segment_bytes=8916, message=message)
            for message in range(1, 11)
        )
        for _ in range(2):
            one.send_train(two.address, small, segment_bytes=small_bytes + HEADER_BYTES)
        two.receive(packets=20)
        assert all(two.message(message) == content(small_bytes, seed=message) for message in range(1, 11))
        for message in (11, 12):
            two.drain()
            one.send(two.address, payload, segment_bytes=8916, message=message)
            two.receive(packets=20 + 7 * (message - 10))
            assert two.message(message) == payload


def test_receive__a_train_whose_tail_is_malformed() -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        whole = raw_packets(one, two, content(3000, seed=SEED), segment_bytes=1000)
        one.send_train(two.address, whole + bytes(HEADER_BYTES - 1), segment_bytes=1056)
        two.receive(packets=3)
        assert two.message(0) == content(3000, seed=SEED)
        assert two.packets == 3


@pytest.mark.parametrize("size_bytes", [0, 1, 15, 16, HEADER_BYTES, 576, 1056, 1057, 5000, 65_507])
def test_receive__control_packets_are_complete(size_bytes: int) -> None:
    packet = (Probe(1, 6, 0, 0, 0).encode() + content(size_bytes, seed=SEED))[:size_bytes]
    with source() as one, Receiver(datagram_bytes=1056) as two:
        one.socket.sendto(packet, two.address)
        if size_bytes:
            two.receive(controls=1)
        else:  # an empty datagram is ignored; the next one is received
            one.socket.sendto(b"after", two.address)
            two.receive(controls=1)
            packet = b"after"
        (data, address, _) = two.controls[0]
        assert data == packet
        assert address == one.socket.getsockname()


# -- congestion marks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=lambda family: family.name)
@pytest.mark.parametrize("packets", [1, 7], ids=["alone", "a train"])
@pytest.mark.parametrize("segment_bytes", [8916, 1400], ids=["fast", "detour"])
def test_receive__reports_which_packets_were_marked(
    family: socket.AddressFamily, packets: int, segment_bytes: int
) -> None:
    payload = content(segment_bytes * packets, seed=SEED)
    with source(family=family) as one, Receiver(family=family, datagram_bytes=8972) as two:
        for message, ecn in enumerate((ECT_0, CE, ECT_0, CE | 0xB8)):  # the last with a DSCP, too
            set_tos(one.socket, ecn, family=family)
            one.send(two.address, payload, segment_bytes=segment_bytes, message=message)
            two.receive(packets=packets * (message + 1))
        marks = {message: {burst.ecn_ce for burst in two.bursts if burst.message == message} for message in range(4)}
        assert marks == {0: {False}, 1: {True}, 2: {False}, 3: {True}}
        assert all(two.message(message) == payload for message in range(4))


def test_receive__ipv4_to_an_ipv6_socket_is_marked_too() -> None:
    with source() as one, Receiver(family=socket.AF_INET6, address=("::", 0, 0, 0)) as two:
        target = ("127.0.0.1", two.address[1])
        for message, ecn in enumerate((ECT_0, CE)):
            set_tos(one.socket, ecn, family=socket.AF_INET)
            one.send(target, content(30_000, seed=SEED), segment_bytes=8916, message=message)
            two.receive(packets=4 * (message + 1))
        assert [(burst.message, burst.ecn_ce) for burst in two.bursts] == [(0, False), (1, True)]


# -- no memory ------------------------------------------------------------------------------------------------------


def test_receive__an_empty_pool_drops_and_counts_and_overwrites_nothing() -> None:
    with source() as one, Receiver(chunk_bytes=128 << 10, chunks=SLOTS + 1) as two:
        number = 0
        while not two.queue.refused_packets:
            one.send(two.address, content(60_000, seed=number), segment_bytes=8916, message=number)
            wait_readable(two.socket)
            two.drain()
            number += 1
            assert number < 1000
        kept = sorted({burst.message for burst in two.bursts})
        assert kept == list(range(number - 1)), "all but the dropped one"
        assert all(two.message(message) == content(60_000, seed=message) for message in kept)
        assert two.queue.refused_packets == 1  # a train counts as one


def use_up(one: Source, two: Receiver) -> None:
    """Send until the receiver has no memory left."""
    while two.pool.free_chunks or not two.buffers.is_scratch(0):
        one.send(two.address, bytes(60_000), segment_bytes=8916)
        wait_readable(two.socket)
        two.drain()


def test_receive__an_empty_pool_still_receives_control_packets() -> None:
    with source() as one, Receiver(chunk_bytes=128 << 10, chunks=2) as two:
        use_up(one, two)
        one.socket.sendto(Probe(5, 6, 0, 0, 0).encode(), two.address)
        two.receive(controls=1)
        assert two.controls[0][0] == Probe(5, 6, 0, 0, 0).encode()


@pytest.mark.parametrize("count", [1, 5], ids=["one", "a train of another size"])
def test_receive__an_empty_pool_still_receives_packets_without_payload(count: int) -> None:
    """An ABORT must be received even then: it frees memory."""
    with source() as one, Receiver(chunk_bytes=128 << 10, chunks=2) as two:
        use_up(one, two)
        before = two.packets
        burst = one.burst(two.address, message=7, size_bytes=0, length=99, segment_bytes=1)
        burst.count, burst.segment_bytes, burst.flags = count, 0, ABORTED
        one.transmit(burst)
        two.receive(packets=before + count)
        assert sum(burst.count for burst in two.bursts if burst.flags == ABORTED and burst.message == 7) == count
        assert all(burst.payload_bytes == 0 for burst in two.bursts if burst.message == 7)


def test_receive__slow_path_data_without_memory_is_dropped_and_counted() -> None:
    with source() as one, Receiver(chunk_bytes=128 << 10, chunks=1, datagram_bytes=8972) as two:
        for _ in range(5):  # the copies' chunk takes four
            one.send(two.address, bytes(30_000), segment_bytes=1000)
        assert receive_batch(two).no_memory == {0x1122334455667788}
        assert two.packets == 4 * 30
        assert two.queue.refused_packets == 1  # a train counts as one
        assert two.queue.bytes_copied == 120_000


def test_receive__a_flood_on_the_slow_path_keeps_what_fits() -> None:
    """One batch has more copies than the copies' chunk holds: some are dropped, and other memory is not written."""
    with source() as one, Receiver(chunk_bytes=128 << 10, chunks=SLOTS + 30) as two:
        for number in range(40):
            one.send(two.address, content(30_000, seed=number), segment_bytes=(1000, 1100)[number % 2], message=number)
        wait_readable(two.socket)
        two.drain()
        assert two.bursts
        for burst in two.bursts:
            start = burst.offset
            assert two.payload(burst) == content(30_000, seed=burst.message)[start : start + burst.payload_bytes]
