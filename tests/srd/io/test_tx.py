"""srd.io.tx over loopback: every burst arrives byte for byte, with GSO and without; full sockets lose nothing."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable

import pytest

from srd.io import syscalls
from srd.io.tx import MAX_TRIES, MESSAGES, PACKETS
from srd.proto.wire.data import HEADER_BYTES
from tests.changed import changed
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
    """Make the kernel return EINVAL for UDP_SEGMENT on this socket."""
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
        waiting = [one.transmitter.port]
        one.transmitter.add(burst)
        assert one.transmitter.has_room_for(burst)
        assert not one.transmitter.has_room_for(changed(burst, path=burst.path + 1))
        assert not one.transmitter.has_room_for(changed(burst, from_path=burst.path + 1)), "of the same path"
        assert one.transmitter.has_room_for(changed(burst, path=burst.path + 1, from_path=burst.path)), "from that port"
        waiting.append(one.transmitter.port)
        assert one.transmitter.flush(one.socket)
        assert [*waiting, one.transmitter.port] == [None, burst.path, None]
        two.receive(packets=3)
        (received,) = two.bursts
        of_the_sender = {"address", "payload_offset", "payload_addresses", "protection", "from_path", "ack"}
        names = vars(burst).keys() - of_the_sender
        assert {name: getattr(received, name) for name in names} == {name: getattr(burst, name) for name in names}
        assert received.address == one.socket.getsockname()


def test_add__rows_are_reused_for_other_shapes() -> None:
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


def test_has_room_for__packets() -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        payload = content(PACKETS * 1000, seed=SEED)
        next_burst = changed(one.burst(two.address, message=1, size_bytes=1, segment_bytes=1000))
        one.psn = 0
        has_room = [one.transmitter.has_room_for(next_burst)]
        one.add(two.address, payload, segment_bytes=1000)
        has_room.append(one.transmitter.has_room_for(next_burst))
        assert one.transmitter.flush(one.socket)
        assert [*has_room, one.transmitter.has_room_for(next_burst)] == [True, False, True]
        two.receive(packets=PACKETS)
        assert two.message(0) == payload


def test_has_room_for__messages() -> None:
    """Two datagrams of the largest size do not fit into one message."""
    with source() as one:
        burst = one.burst(("127.0.0.1", 9), message=1, size_bytes=3 * 65_000, length=1, segment_bytes=65_000)
        assert one.transmitter.messages_of(burst) == 3
        bursts = 0
        while one.transmitter.has_room_for(burst):
            one.transmitter.add(burst)
            bursts += 1
        assert bursts == MESSAGES // 3


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
        assert [burst.message for burst in two.bursts] == [2]


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
            one.send_train(two.address, bytes(3000), segment_bytes=1000)
        packets = one.send(two.address, payload, segment_bytes=1400)
        two.receive(packets=packets)
        assert two.message(0) == payload
        assert len(two.bursts) == packets  # no trains


def test_flush__the_fallback_is_per_socket() -> None:
    with source() as one, source() as other, Receiver(datagram_bytes=1056) as two:
        refuse_segmentation(one.socket)
        one.send(two.address, bytes(9000), segment_bytes=1000)
        two.receive(packets=9)
        two.bursts.clear()
        whole = Source(other.socket, one.region, one.transmitter)  # another socket, the same transmitter
        whole.send(two.address, bytes(9000), segment_bytes=1000)
        two.receive(packets=9)
        assert len(two.bursts) == 1


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_flush__an_icmp_error_of_another_datagram_loses_nothing(family: socket.AddressFamily) -> None:
    """The next call returns the error: here a call between the bursts of one flush, and before it."""
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
    one.add(("255.255.255.255", 9), bytes(5000), segment_bytes=1000, message=1)  # broadcast, which needs SO_BROADCAST


def refused_for_its_length(one: Source) -> None:
    one.add(("127.0.0.1", 9), bytes(65_452), segment_bytes=65_452, message=1)


@pytest.mark.parametrize("add_refused", [refused_by_address, refused_for_its_length])
def test_flush__only_the_refused_datagram_is_lost(add_refused: Callable[[Source], None]) -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        packets = one.add(two.address, content(5000, seed=1), segment_bytes=1000, message=0)
        add_refused(one)
        packets += one.add(two.address, content(5000, seed=1), segment_bytes=1000, message=2)
        assert one.transmitter.flush(one.socket)
        two.receive(packets=packets)
        assert [two.message(message) for message in (0, 2)] == [content(5000, seed=1)] * 2
        assert not one.transmitter._no_gso, "the error was not about segmentation"


class ScriptedSendmmsg:
    """Replaces the system call: gives these answers, one to each call, then accepts all.

    An answer is an error, or the number of messages that the socket takes; 0 for a full socket.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Iterable[int | OSError]) -> None:
        self.answers = list(answers)
        self.real = syscalls.sendmmsg
        monkeypatch.setattr(syscalls, "sendmmsg", self)

    def __call__(self, fd: int, *, messages: int, count: int) -> int:
        answer = self.answers.pop(0) if self.answers else count
        if isinstance(answer, OSError):
            raise answer
        if answer == 0:
            raise BlockingIOError(errno.EAGAIN, "EAGAIN")
        return self.real(fd, messages=messages, count=min(answer, count))


def errors(*codes: int) -> list[OSError]:
    return [OSError(code, "error") for code in codes]


@pytest.mark.parametrize(
    ("codes", "lost"),
    [
        ([errno.EMSGSIZE] * (MAX_TRIES - 1), 0),  # of an earlier datagram
        ([errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH], 0),
        ([errno.EMSGSIZE] * 2 * MAX_TRIES, 1),  # in a train, and singly
        ([errno.EPERM] * MAX_TRIES, 1),
        ([errno.ENOBUFS], 1),
        ([errno.ENOBUFS] * 2, 2),
    ],
)
def test_flush__errors_lose_only_their_datagrams(monkeypatch: pytest.MonkeyPatch, codes: list[int], lost: int) -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        scripted = ScriptedSendmmsg(monkeypatch, errors(*codes))
        for message in range(3):
            one.add(two.address, content(5000, seed=SEED), segment_bytes=1000, message=message)
        assert one.transmitter.flush(one.socket)
        two.receive(packets=5 * (3 - lost))
        assert {burst.message for burst in two.bursts} == {*range(lost, 3)}
        for message in range(lost, 3):
            assert two.message(message) == content(5000, seed=SEED)
        assert (scripted.answers, one.transmitter._no_gso) == ([], set())


def test_flush__of_datagrams_sent_singly_only_the_refused_one_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        refuse_segmentation(one.socket)
        one.send(two.address, bytes(2000), segment_bytes=1000, message=0)
        ScriptedSendmmsg(monkeypatch, errors(*[errno.EPERM] * MAX_TRIES))
        one.add(two.address, bytes(10_000), segment_bytes=1000, message=1)
        assert one.transmitter.flush(one.socket)
        two.receive(packets=2 + 9)
        assert sum(burst.count for burst in two.bursts if burst.message == 1) == 9


# -- bursts that are discarded --------------------------------------------------------------------------------------


@pytest.mark.parametrize("unwanted", [{0}, {1}, {2}, {0, 2}, set()])
def test_keep__the_others_arrive(monkeypatch: pytest.MonkeyPatch, unwanted: set[int]) -> None:
    payload = content(60_000, seed=SEED)
    with source() as one, Receiver(datagram_bytes=1056) as two:
        ScriptedSendmmsg(monkeypatch, [0])
        for message in range(3):
            one.add(two.address, payload, segment_bytes=1000, message=message)
        assert not one.transmitter.flush(one.socket)
        one.transmitter.drop_unneeded(lambda burst: burst.message not in unwanted)
        assert one.transmitter.flush(one.socket)
        wanted = {0, 1, 2} - unwanted
        two.receive(packets=60 * len(wanted))
        assert {burst.message for burst in two.bursts} == wanted
        assert all(two.message(message) == payload for message in wanted)


def test_keep__none_and_then_another_path(monkeypatch: pytest.MonkeyPatch) -> None:
    with source() as one, Receiver(datagram_bytes=1056) as two:
        ScriptedSendmmsg(monkeypatch, [0])
        one.add(two.address, bytes(5000), segment_bytes=1000)
        assert not one.transmitter.flush(one.socket)
        one.transmitter.drop_unneeded(lambda _: False)
        assert one.transmitter.port is None
        assert one.transmitter.flush(one.socket)


def test_keep__of_a_burst_that_went_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent is not sent again; the burst after it is sent."""
    payload = content(100_000, seed=SEED)
    with source() as one, Receiver(datagram_bytes=1056) as two:
        ScriptedSendmmsg(monkeypatch, [1, 0])
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


@pytest.mark.parametrize("answers", [[0], [3, 0], [1, 1, 0], [7, 0], [2, 0, 0]])
def test_flush__a_full_socket_keeps_the_rest(monkeypatch: pytest.MonkeyPatch, answers: list[int]) -> None:
    payload = content(24_000 - 1, seed=SEED)
    with source() as one, Receiver(datagram_bytes=1056) as two:
        blocked = answers.count(0)
        ScriptedSendmmsg(monkeypatch, answers)
        packets = one.add(two.address, payload, segment_bytes=1000, burst_packets=3)
        assert [one.transmitter.flush(one.socket) for _ in range(blocked + 1)] == [False] * blocked + [True]
        two.receive(packets=packets)
        assert two.packets == packets  # no duplicates
        assert two.message(0) == payload


@pytest.mark.parametrize("answers", [[0], [4, 0], [1, 2, 0, 3, 0]])
def test_flush__full_while_sending_singly_loses_nothing(monkeypatch: pytest.MonkeyPatch, answers: list[int]) -> None:
    payload = content(70_000, seed=SEED)  # two messages
    with source() as one, Receiver(datagram_bytes=1056) as two:
        refuse_segmentation(one.socket)
        one.send(two.address, bytes(2000), segment_bytes=1000, message=0)
        blocked = answers.count(0)
        ScriptedSendmmsg(monkeypatch, answers)
        one.add(two.address, payload, segment_bytes=1000, message=1)
        assert [one.transmitter.flush(one.socket) for _ in range(blocked + 1)] == [False] * blocked + [True]
        two.receive(packets=2 + 70)
        assert two.message(1) == payload
