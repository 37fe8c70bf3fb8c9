"""srd.io.tx over loopback: every burst arrives byte for byte, with GSO and without; full sockets lose nothing."""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from srd.io import syscalls
from srd.io.tx import MAX_TRIES, MESSAGES, PACKETS, messages_of
from srd.proto.wire.data import HEADER_BYTES
from tests.srd.io.exchange import Receiver, Source, content, source

SO_NO_CHECK = 11  # asm-generic/socket.h; the kernel refuses to segment without checksums (net/ipv4/udp.c, udp_send_skb)
SEED = 11
FAMILIES = [socket.AF_INET, socket.AF_INET6]

SHAPES = [  # (message bytes, segment bytes)
    (0, 1000),
    (1, 1000),
    (999, 1000),
    (1000, 1000),
    (1001, 1000),
    (64_000, 1000),
    (63_999, 1000),
    (8916 * 7, 8916),
    (8916 * 7 - 1, 8916),
    (300_000, 8916),
    (350_000, 1416),
    (64, 1),
]


def refuse_segmentation(sock: socket.socket) -> None:
    """Make the kernel answer EINVAL to UDP_SEGMENT on this socket."""
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.SOL_UDP, 101, 1)  # UDP_NO_CHECK6_TX
    else:
        sock.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)


# -- what arrives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize(("size_bytes", "segment_bytes"), SHAPES)
def test_flush__arrives_byte_for_byte(family: socket.AddressFamily, size_bytes: int, segment_bytes: int) -> None:
    payload = content(size_bytes, seed=SEED)
    with source(family=family) as one, Receiver(family=family, datagram_bytes=segment_bytes + HEADER_BYTES) as two:
        packets = one.send(two.address, payload, segment_bytes=segment_bytes)
        two.receive(packets=packets)
        assert two.message(0) == payload
        assert two.packets == packets == max(-(-size_bytes // segment_bytes), 1)
        assert two.queue.bytes_copied == 0


@pytest.mark.sources
def test_flush__headers_hold_the_fields_of_the_burst() -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        one.fill(content(2500, seed=SEED))
        burst = one.burst(two.address, message=9, offset=500, size_bytes=2500, length=9000, segment_bytes=1000)
        waiting = [one.transmitter.path]
        one.transmitter.add(burst)
        assert one.transmitter.has_room_for(burst)
        assert not one.transmitter.has_room_for(replace(burst, path=burst.path + 1))
        waiting.append(one.transmitter.path)
        assert one.transmitter.flush(one.socket)
        assert [*waiting, one.transmitter.path] == [None, burst.path, None]
        two.receive(packets=3)
        (run,) = two.runs
        fields = {
            name: getattr(run, name)
            for name in burst.__slots__
            if name not in {"address", "payload_offset", "payload_addresses"}
        }
        assert fields == {name: getattr(burst, name) for name in fields}
        assert run.address == one.socket.getsockname()


def test_flush__a_burst_is_one_train_for_the_kernel() -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        one.send(two.address, bytes(40_000), segment_bytes=1000)
        two.receive(packets=40)
        assert len(two.runs) == 1


def test_add__rows_are_used_again_for_other_shapes() -> None:
    """What a row kept of an earlier burst (segment size, a shortened last payload) must not reach a later one."""
    with source() as one, Receiver(datagram_bytes=1056) as two:
        for round_number in range(3):
            for message, (size_bytes, segment_bytes) in enumerate(SHAPES):
                if segment_bytes > 1000:
                    continue
                payload = content(size_bytes, seed=SEED + round_number)
                packets = one.send(two.address, payload, segment_bytes=segment_bytes, message=message)
                two.receive(packets=packets)
                assert two.message(message) == payload, (round_number, size_bytes, segment_bytes)
                two.release()


def test_takes__so_many_packets() -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        payload = content(PACKETS * 1000, seed=SEED)
        next_burst = replace(one.burst(two.address, message=1, offset=0, size_bytes=1, length=1, segment_bytes=1000))
        one.psn = 0
        takes = [one.transmitter.has_room_for(next_burst)]
        one.add(two.address, payload, segment_bytes=1000)
        takes.append(one.transmitter.has_room_for(next_burst))
        assert one.transmitter.flush(one.socket)
        assert [*takes, one.transmitter.has_room_for(next_burst)] == [True, False, True]
        two.receive(packets=PACKETS)
        assert two.message(0) == payload


def test_takes__so_many_messages() -> None:
    """Two datagrams of the largest size have no room in one message."""
    with source() as one:
        burst = one.burst(("127.0.0.1", 9), message=1, offset=0, size_bytes=3 * 65_000, length=1, segment_bytes=65_000)
        assert messages_of(burst) == 3
        bursts = 0
        while one.transmitter.has_room_for(burst):
            one.transmitter.add(burst)
            bursts += 1
        assert bursts == MESSAGES // 3


def test_add__a_burst_longer_than_a_message_is_several() -> None:
    payload = content(8916 * 64 - 5, seed=SEED)
    with source() as one, Receiver(datagram_bytes=8972) as two:
        one.fill(payload)
        burst = one.burst(
            two.address, message=0, offset=0, size_bytes=len(payload), length=len(payload), segment_bytes=8916
        )
        assert (burst.count, messages_of(burst)) == (64, 10)
        one.transmitter.add(burst)
        assert one.transmitter.flush(one.socket)
        two.receive(packets=64)
        assert two.message(0) == payload
        assert [run.count for run in two.runs] == [7] * 9 + [1]


def test_add__one_call_may_serve_several_addresses() -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two, Receiver(datagram_bytes=1056) as three:
        one.add(two.address, content(3000, seed=SEED), segment_bytes=1000, message=2)
        one.psn = 0
        one.add(three.address, content(3000, seed=SEED), segment_bytes=1000, message=3)
        assert one.transmitter.flush(one.socket)
        for receiver, message in ((two, 2), (three, 3)):
            receiver.receive(packets=3)
            assert receiver.message(message) == content(3000, seed=SEED)


def test_discard__nothing_of_it_is_sent() -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        one.add(two.address, bytes(5000), segment_bytes=1000, message=1)
        one.transmitter.discard()
        one.send(two.address, content(10, seed=SEED), segment_bytes=1000, message=2)
        two.receive(packets=1)
        assert [run.message for run in two.runs] == [2]


# -- kernels and devices that do not segment ------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_flush__falls_back_where_the_kernel_refuses_to_segment(family: socket.AddressFamily) -> None:
    payload = content(300_001, seed=SEED)
    with source(family=family) as one, Receiver(family=family, datagram_bytes=1456) as two:
        two.without_gro()
        if family == socket.AF_INET6:
            two.socket.setsockopt(socket.SOL_UDP, 102, 1)  # UDP_NO_CHECK6_RX
        refuse_segmentation(one.socket)
        with pytest.raises(OSError, match="Invalid argument"):
            one.send_series(two.address, bytes(3000), segment_bytes=1000)
        packets = one.send(two.address, payload, segment_bytes=1400)
        two.receive(packets=packets)
        assert two.message(0) == payload
        assert len(two.runs) == packets  # each came alone


def test_flush__the_fallback_is_that_sockets_only() -> None:
    with source() as one, source() as other, Receiver(datagram_bytes=1056) as two:
        refuse_segmentation(one.socket)
        one.send(two.address, bytes(9000), segment_bytes=1000)
        two.receive(packets=9)
        two.runs.clear()
        whole = Source(other.socket, one.region, one.transmitter)  # another socket, the same transmitter
        whole.send(two.address, bytes(9000), segment_bytes=1000)
        two.receive(packets=9)
        assert len(two.runs) == 1


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_flush__an_icmp_error_of_another_datagram_loses_nothing(family: socket.AddressFamily) -> None:
    """Loopback answers at once, and the error is the next call's: here between the bursts of one call, and before."""
    payload = content(60_000, seed=SEED)
    with source(family=family) as one, Receiver(family=family, datagram_bytes=1056) as two:
        with Receiver(family=family) as gone:
            nobody = gone.address
        one.socket.sendto(b"anyone?", nobody)
        packets = one.add(two.address, payload, segment_bytes=1000, message=0)
        one.add(nobody, bytes(10), segment_bytes=1000, message=1)
        packets += one.add(two.address, payload, segment_bytes=1000, message=2)
        assert one.transmitter.flush(one.socket)
        two.receive(packets=packets)
        assert (two.message(0), two.message(2)) == (payload, payload)


def refused_by_address(one: Source) -> None:
    one.add(
        ("255.255.255.255", 9), bytes(5000), segment_bytes=1000, message=1
    )  # broadcast, which a socket must ask for


def refused_for_its_length(one: Source) -> None:
    nobody = ("127.0.0.1", 9)
    burst = one.burst(nobody, message=1, offset=0, size_bytes=65_452, length=65_452, segment_bytes=65_452)
    one.transmitter.add(burst)


@pytest.mark.parametrize("add_refused", [refused_by_address, refused_for_its_length])
def test_flush__what_is_refused_is_lost_alone(add_refused: Callable[[Source], None]) -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        packets = one.add(two.address, content(5000, seed=1), segment_bytes=1000, message=0)
        add_refused(one)
        packets += one.add(two.address, content(5000, seed=1), segment_bytes=1000, message=2)
        assert one.transmitter.flush(one.socket)
        two.receive(packets=packets)
        assert [two.message(message) for message in (0, 2)] == [content(5000, seed=1)] * 2
        assert not one.transmitter._no_gso, "it was no matter of segmentation"


class Errors:
    """In place of the system call: fails with these, one a call, and then no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, codes: list[int]) -> None:
        self.codes = codes
        self.real = syscalls.sendmmsg
        monkeypatch.setattr(syscalls, "sendmmsg", self)

    def __call__(self, fd: int, *, messages: int, count: int) -> int:
        if self.codes:
            raise OSError(self.codes.pop(0), "error")
        return self.real(fd, messages=messages, count=count)


@pytest.mark.parametrize(
    ("codes", "lost"),
    [
        ([errno.EMSGSIZE] * (MAX_TRIES - 1), 0),  # about an earlier datagram
        ([errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH], 0),
        ([errno.EMSGSIZE] * 2 * MAX_TRIES, 1),  # in a train, and singly
        ([errno.EPERM] * MAX_TRIES, 1),
        ([errno.ENOBUFS], 1),
        ([errno.ENOBUFS] * 2, 2),
    ],
)
def test_flush__errors_lose_what_they_are_about(monkeypatch: pytest.MonkeyPatch, codes: list[int], lost: int) -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        Errors(monkeypatch, codes)
        for message in range(3):
            one.add(two.address, content(5000, seed=SEED), segment_bytes=1000, message=message)
        assert one.transmitter.flush(one.socket)
        two.receive(packets=5 * (3 - lost))
        for message in range(lost, 3):
            assert two.message(message) == content(5000, seed=SEED)
        assert (codes, one.transmitter._no_gso) == ([], set())


def test_flush__a_refused_datagram_of_those_sent_singly_is_lost_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        refuse_segmentation(one.socket)
        one.send(two.address, bytes(2000), segment_bytes=1000, message=0)
        Errors(monkeypatch, [errno.EPERM] * MAX_TRIES)
        one.add(two.address, bytes(10_000), segment_bytes=1000, message=1)
        assert one.transmitter.flush(one.socket)
        two.receive(packets=2 + 9)
        assert sum(run.count for run in two.runs if run.message == 1) == 9


# -- what is not wanted any more ------------------------------------------------------------------------------------


@pytest.mark.parametrize("unwanted", [{0}, {1}, {2}, {0, 2}, set()])
def test_keep__the_others_arrive(monkeypatch: pytest.MonkeyPatch, unwanted: set[int]) -> None:
    payload = content(60_000, seed=SEED)
    with source() as one, Receiver(datagram_bytes=1056) as two:
        Gate(monkeypatch, [0])
        for message in range(3):
            one.add(two.address, payload, segment_bytes=1000, message=message)
        assert not one.transmitter.flush(one.socket)
        one.transmitter.drop_unneeded(lambda burst: burst.message not in unwanted)
        assert one.transmitter.flush(one.socket)
        wanted = {0, 1, 2} - unwanted
        two.receive(packets=60 * len(wanted))
        assert {run.message for run in two.runs} == wanted
        assert all(two.message(message) == payload for message in wanted)


def test_keep__all_of_them_and_on_with_another_path(monkeypatch: pytest.MonkeyPatch) -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        Gate(monkeypatch, [0])
        one.add(two.address, bytes(5000), segment_bytes=1000)
        assert not one.transmitter.flush(one.socket)
        one.transmitter.drop_unneeded(lambda _: False)
        assert one.transmitter.path is None
        assert one.transmitter.flush(one.socket)


def test_keep__of_a_burst_that_went_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has left is not sent again, and the burst behind it is."""
    payload = content(100_000, seed=SEED)
    with source() as one, Receiver(datagram_bytes=1056) as two:
        Gate(monkeypatch, [1, 0])
        for message in range(2):
            one.add(two.address, payload, segment_bytes=1000, message=message)
        assert not one.transmitter.flush(one.socket)
        one.transmitter.drop_unneeded(lambda burst: burst.message != 0)
        assert one.transmitter.flush(one.socket)
        two.receive(packets=messages_share(1056) + 100)
        assert two.message(1) == payload


def messages_share(datagram_bytes: int) -> int:
    """Return how many datagrams go as one message."""
    return min(65_507 // datagram_bytes, 64)


# -- full sockets ---------------------------------------------------------------------------------------------------


class Gate:
    """In place of the system call: takes so many messages a call, then the socket is full, then it is not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: list[int]) -> None:
        self.answers = answers
        self.real = syscalls.sendmmsg
        monkeypatch.setattr(syscalls, "sendmmsg", self)

    def __call__(self, fd: int, *, messages: int, count: int) -> int:
        allowed = self.answers.pop(0) if self.answers else count
        if allowed == 0:
            raise BlockingIOError(errno.EAGAIN, "EAGAIN")
        return self.real(fd, messages=messages, count=min(allowed, count))


@pytest.mark.parametrize("answers", [[0], [3, 0], [1, 1, 0], [7, 0], [2, 0, 0]])
def test_flush__a_full_socket_keeps_what_waits(monkeypatch: pytest.MonkeyPatch, answers: list[int]) -> None:
    payload = content(24_000 - 1, seed=SEED)
    with source() as one, Receiver(datagram_bytes=1056) as two:
        blocked = answers.count(0)
        Gate(monkeypatch, answers)
        packets = one.add(two.address, payload, segment_bytes=1000, burst_packets=3)
        assert [one.transmitter.flush(one.socket) for _ in range(blocked + 1)] == [False] * blocked + [True]
        two.receive(packets=packets)
        assert two.packets == packets  # nothing twice
        assert two.message(0) == payload


@pytest.mark.parametrize("answers", [[0], [4, 0], [1, 2, 0, 3, 0]])
def test_flush__full_while_it_sends_singly_loses_nothing(monkeypatch: pytest.MonkeyPatch, answers: list[int]) -> None:
    payload = content(70_000, seed=SEED)  # two messages
    with source() as one, Receiver(datagram_bytes=1056) as two:
        refuse_segmentation(one.socket)
        one.send(two.address, bytes(2000), segment_bytes=1000, message=0)
        blocked = answers.count(0)
        Gate(monkeypatch, answers)
        one.add(two.address, payload, segment_bytes=1000, message=1)
        assert [one.transmitter.flush(one.socket) for _ in range(blocked + 1)] == [False] * blocked + [True]
        two.receive(packets=2 + 70)
        assert two.message(1) == payload


def test_control_message__is_what_the_kernel_wants() -> None:
    """struct cmsghdr: length, level, type, and the segment's 16 bits (linux/udp.h)."""
    with source() as one:
        one.add(("127.0.0.1", 9), bytes(5000), segment_bytes=1000)
        control = ctypes.string_at(int(one.transmitter._messages[0]["control"]), 18)
        length, level, kind, segment = struct.unpack("=QiiH", control)
        assert (length, level, kind, segment) == (18, socket.SOL_UDP, syscalls.UDP_SEGMENT, 1000 + HEADER_BYTES)
        one.transmitter.discard()
