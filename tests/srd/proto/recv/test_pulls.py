"""Pulls by hand: who is told to ask, whose turn it is, what is outstanding, and what liars gain."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from srd.proto.config import ProtocolConfig
from srd.proto.recv.pulls import HEAD_START, LATE_TURNS, UNSOLICITED_BYTES, Pulls
from srd.proto.wire.control import ANY_BYTES, NO_LIMIT_BYTES, Pull, PullRequest

PACKET = 1000
CONFIG = ProtocolConfig(incast_packets=8, min_rto_s=0.001, initial_rtt_s=0.001)
CONTEXT = 7
MANY = range(20)
TIMEOUT_S = 0.003
"""Before any sample, see `RttEstimator`."""


class Receiver:
    """Pulls, and what each sender would do with them: `limits` are those that they were told."""

    def __init__(self, peers: range = MANY) -> None:
        self.pulls = Pulls(CONFIG)
        self.pulls.on_peers(peers)
        self.now = 10.0
        self.received = dict.fromkeys(peers, 0)
        self.limits: dict[int, int] = {}
        self.polled()

    def ask(self, peer: int, *, backlog_bytes: int, sent_bytes: int | None = None, number: int = 1 << 32) -> None:
        sent_bytes = self.received[peer] if sent_bytes is None else sent_bytes
        request = PullRequest(CONTEXT, sent_bytes, backlog_bytes, number)
        self.pulls.on_request(peer, request, packet_bytes=PACKET, received_bytes=self.received[peer])

    def arrive(self, peer: int, size_bytes: int = PACKET, *, after_s: float = 0.0001) -> None:
        self.now += after_s
        self.received[peer] += size_bytes
        self.pulls.on_data(peer, burst_bytes=size_bytes, received_bytes=self.received[peer], now=self.now)

    def polled(self) -> dict[int, Pull]:
        """Take turns; return the PULLs that are due, by peer."""
        self.pulls.take_turns(now=self.now)
        sent = {peer: self.pulls.poll(peer, context=CONTEXT) for peer in list(self.pulls.due)}
        self.limits |= {peer: pull.limit_bytes for peer, pull in sent.items()}
        return sent


def asked(peers: int, *, packets: int) -> Receiver:
    """A receiver whose first peers have asked for so many packets each, which nobody has answered yet."""
    receiver = Receiver()
    for peer in range(peers):
        receiver.ask(peer, backlog_bytes=packets * PACKET)
    return receiver


def test_on_peers__few_are_never_told_anything() -> None:
    pulls = Pulls(CONFIG)
    for count in range(9):
        pulls.on_peers(range(count))
        pulls.on_opened(count)
    assert not pulls.is_crowded
    assert not pulls.due


def test_on_peers__many_are_told_to_ask_once() -> None:
    pulls = Pulls(CONFIG)
    pulls.on_peers(range(9))
    assert list(pulls.due) == list(range(9))
    assert pulls.poll(3, context=CONTEXT) == Pull(CONTEXT, 0, 1, UNSOLICITED_BYTES)
    pulls.on_peers(range(10))
    pulls.on_opened(9)
    assert list(pulls.due) == [0, 1, 2, 4, 5, 6, 7, 8, 9], "the new one, and those that were not told yet"


def test_on_peers__few_again_have_no_limit() -> None:
    receiver = Receiver()
    receiver.ask(1, backlog_bytes=10 * PACKET)
    receiver.polled()
    for peer in range(19, 4, -1):
        receiver.pulls.forget(peer, left=range(peer))
        assert receiver.pulls.is_crowded == (peer > 4)
    receiver.pulls.forget(4, left=range(4))
    assert not receiver.pulls.is_crowded
    assert {peer: (pull.limit_bytes, pull.unsolicited_bytes) for peer, pull in receiver.polled().items()} == {
        1: (NO_LIMIT_BYTES, ANY_BYTES)
    }, "who waits is told"
    receiver.ask(2, backlog_bytes=PACKET)
    assert receiver.polled()[2].limit_bytes == NO_LIMIT_BYTES
    assert receiver.pulls.check_at is None


def test_unasked__the_first_pull_is_repeated_once_a_timeout() -> None:
    receiver = Receiver()
    for peer in (1, 2):
        receiver.arrive(peer, UNSOLICITED_BYTES + 1, after_s=0)
    assert receiver.polled() == {}, "the PULL may be on its way"
    told = []
    for _ in range(100):
        receiver.arrive(1, UNSOLICITED_BYTES + 1, after_s=TIMEOUT_S / 10)
        receiver.arrive(2, UNSOLICITED_BYTES, after_s=0)
        told += list(receiver.polled().items())
    assert len(told) in (9, 10)
    assert {(peer, pull) for peer, pull in told} == {(1, Pull(CONTEXT, 0, 1, UNSOLICITED_BYTES))}
    receiver.ask(1, backlog_bytes=PACKET)
    assert receiver.polled()[1].limit_bytes == receiver.received[1] + PACKET
    receiver.arrive(1, UNSOLICITED_BYTES + 1, after_s=5 * TIMEOUT_S)
    assert receiver.polled() == {}, "it was pulled"


def test_unasked__by_a_peer_that_asked_before() -> None:
    receiver = Receiver()
    receiver.ask(1, backlog_bytes=PACKET)
    receiver.polled()
    receiver.arrive(1)
    receiver.polled()
    for _ in range(2):
        receiver.arrive(1, 2 * PACKET, after_s=TIMEOUT_S)
    assert receiver.polled()[1] == Pull(CONTEXT, PACKET, 3, UNSOLICITED_BYTES, 3)


def test_turns__one_packet_each_at_first_and_the_window_in_all() -> None:
    receiver = asked(12, packets=5)
    assert [pull.limit_bytes for pull in receiver.polled().values()] == [PACKET] * 8 + [0] * 4, "each is answered"
    receiver.arrive(0)
    assert receiver.polled()[8].limit_bytes == PACKET, "what arrived makes room for the next"
    assert receiver.polled() == {}


def test_turns__the_sender_with_the_fewest() -> None:
    receiver = asked(12, packets=100)
    order = list(receiver.polled())[:8]
    for _ in range(100):
        receiver.arrive(order.pop(0))
        order += receiver.polled()
    turns = [receiver.limits[peer] // PACKET for peer in range(12)]
    assert max(turns) - min(turns) <= 1, turns


def test_turns__a_late_sender_catches_up_to_a_point() -> None:
    receiver = asked(12, packets=1000)
    order = list(receiver.polled())[:8]

    def rounds(packets: int) -> list[int]:
        served = []
        for _ in range(packets):
            receiver.arrive(order.pop(0))
            served += (new := list(receiver.polled()))
            order.extend(new)
        return served

    rounds(240)  # 20 turns each
    receiver.ask(12, backlog_bytes=1000 * PACKET)
    receiver.polled()
    served = rounds(130)
    assert HEAD_START - 1 <= served.count(12) - served.count(0) <= HEAD_START + 1


def test_turns__only_what_was_asked_for() -> None:
    receiver = Receiver()
    for peer in range(12):
        receiver.ask(peer, backlog_bytes=1500)
    order = [peer for peer, pull in receiver.polled().items() if pull.limit_bytes]
    while order:
        peer = order.pop(0)
        receiver.arrive(peer, receiver.limits[peer] - receiver.received[peer])
        order += receiver.polled()
    assert [receiver.limits[peer] for peer in range(12)] == [1500] * 12, "two packets"


def test_free__few_active_senders_after_their_first_packet() -> None:
    receiver = Receiver()
    receiver.ask(3, backlog_bytes=50 * PACKET)
    assert receiver.polled()[3].limit_bytes == PACKET
    receiver.arrive(3)
    assert receiver.polled()[3] == Pull(CONTEXT, NO_LIMIT_BYTES, 3, UNSOLICITED_BYTES, 3)
    receiver.ask(3, backlog_bytes=49 * PACKET, number=2)
    assert receiver.polled()[3].limit_bytes == NO_LIMIT_BYTES, "it asked before it knew"
    receiver.ask(4, backlog_bytes=50 * PACKET)
    receiver.polled()
    receiver.arrive(4)
    assert receiver.polled()[4].limit_bytes == 9 * PACKET, "the window: one of eight is free, and that is 3"


def expire(receiver: Receiver) -> dict[int, Pull]:
    """Wait until the oldest of what is outstanding is late; take turns."""
    at = receiver.pulls.check_at
    assert at is not None
    receiver.now = at
    return receiver.polled()


def test_late__does_not_count_and_keeps_its_place() -> None:
    receiver = asked(9, packets=5)
    receiver.polled()
    sent = expire(receiver)
    assert sent[8].limit_bytes == PACKET
    assert sent[0].limit_bytes == PACKET, "the pull may have been lost: it is repeated, and nothing more is pulled"
    assert all(receiver.pulls.waits(peer) for peer in range(9))
    receiver.arrive(0)
    assert receiver.polled()[7].limit_bytes == PACKET, "it has had fewer turns"
    receiver.arrive(1)
    assert receiver.polled()[0].limit_bytes == 2 * PACKET, "late data counts, and its sender goes on without asking"


def test_late__again_and_again_takes_no_more_turns_until_it_asks() -> None:
    receiver = Receiver()
    receiver.ask(0, backlog_bytes=5 * PACKET)
    receiver.polled()
    began_at, times = receiver.now, []
    for _ in range(LATE_TURNS):
        expire(receiver)
        times.append(receiver.now - began_at)
        began_at = receiver.now
    assert [later / first for first, later in pairwise(times)] == pytest.approx([2.0] * (LATE_TURNS - 1))
    assert not receiver.pulls.waits(0)
    assert receiver.pulls.check_at is None
    receiver.ask(0, backlog_bytes=5 * PACKET, sent_bytes=PACKET)
    assert receiver.polled()[0].limit_bytes == 2 * PACKET


def test_late__adapts_to_a_slow_host() -> None:
    """A host that takes 20 ms for each turn, of which the first time that is assumed knows nothing."""
    receiver = asked(12, packets=1000)
    receiver.polled()
    repeated = []
    for _ in range(100):
        outstanding = [peer for peer in receiver.limits if receiver.limits[peer] > receiver.received[peer]]
        receiver.now += 0.02
        before = receiver.limits.copy()
        repeated.append(sum(pull.limit_bytes == before[peer] for peer, pull in receiver.polled().items()))
        assert outstanding
        for peer in outstanding:
            receiver.arrive(peer, after_s=0)
        receiver.polled()
    assert sum(repeated[20:]) == 0, repeated
    turns = [receiver.limits[peer] // PACKET for peer in range(12)]
    assert max(turns) - min(turns) <= 4, turns


def test_time__is_of_a_pull_to_its_own_data() -> None:
    """Data that arrives in the turn in which more is pulled gives no sample for that."""
    receiver = asked(12, packets=100)
    order = [peer for peer, pull in receiver.polled().items() if pull.limit_bytes]
    for _ in range(50):
        receiver.now += 0.01
        for _ in range(8):
            receiver.arrive(order.pop(0), after_s=0)
        before = receiver.limits.copy()
        order += [peer for peer, pull in receiver.polled().items() if pull.limit_bytes > before[peer]]
    assert receiver.pulls._time.min_s == pytest.approx(0.01)


def test_turns__count_from_what_was_sent_unasked() -> None:
    """Small messages that were sent unasked do not use up the turns that follow."""
    receiver = asked(9, packets=5)
    receiver.polled()
    receiver.arrive(8, 3 * PACKET)
    receiver.arrive(0)
    assert receiver.polled()[8].limit_bytes == 4 * PACKET


def test_refused__is_free_until_it_asks_again() -> None:
    """Else its turn for the memory would wait for the turns of others, which would be refused."""
    receiver = asked(12, packets=5)
    receiver.polled()
    assert receiver.pulls.waits(11)
    receiver.pulls.on_refused(11, now=receiver.now)
    assert not receiver.pulls.waits(11)
    assert receiver.polled()[11].limit_bytes == NO_LIMIT_BYTES
    receiver.pulls.on_refused(11, now=receiver.now)
    receiver.pulls.on_refused(15, now=receiver.now)  # it never asked
    assert receiver.polled() == {}
    receiver.ask(11, backlog_bytes=5 * PACKET)
    assert receiver.polled()[11].limit_bytes == 0


def test_shifts__what_is_asked_for_fits_into_the_memory() -> None:
    """Two windows less the longest message are 48 MiB, and a shift is an eighth of a window at most."""
    receiver = Receiver()
    for peer in range(20):
        receiver.ask(peer, backlog_bytes=100 << 20)
    receiver.polled()
    assert receiver.pulls._shifts_bytes == 48 << 20
    assert list(receiver.pulls._waiting) == list(range(12, 20))


def test_shifts__go_on_after_a_loss_at_the_end_of_one() -> None:
    """The last packet of a shift is lost: its sender asks for more, and begins another shift."""
    receiver = asked(12, packets=1)
    receiver.polled()
    receiver.ask(0, backlog_bytes=PACKET, sent_bytes=PACKET)
    for peer in range(1, 8):
        receiver.arrive(peer)
    assert receiver.polled()[0].limit_bytes == 2 * PACKET


@pytest.mark.parametrize("sent_bytes", [0, 1 << 40, (1 << 64) - 1])
@pytest.mark.parametrize("backlog_bytes", [0, 1 << 40, (1 << 64) - 1])
def test_liar__gains_a_packet_and_harms_nobody(sent_bytes: int, backlog_bytes: int) -> None:
    receiver = Receiver()
    for _ in range(3):
        receiver.ask(0, backlog_bytes=backlog_bytes, sent_bytes=sent_bytes)
        pull = receiver.polled()[0]
        assert pull.encode()
    for peer in range(1, 9):
        receiver.ask(peer, backlog_bytes=PACKET)
    granted = [pull for peer, pull in receiver.polled().items() if peer and pull.limit_bytes == PACKET]
    assert len(granted) >= 7


def test_late__a_repeated_pull_counts_as_a_whole() -> None:
    """It may be the last that fits: then the window is exceeded by what it repeats, and nobody has a turn."""
    receiver = Receiver()
    for peer in range(2):  # one alone would be free
        receiver.ask(peer, backlog_bytes=20 * PACKET)
    receiver.polled()
    receiver.arrive(0)
    receiver.polled()
    pulls = receiver.pulls
    late_bytes = pulls._turns[0].outstanding_bytes
    assert late_bytes == 4 * PACKET
    for peer in range(2, 7):
        receiver.ask(peer, backlog_bytes=20 * PACKET)
    receiver.now += 1
    receiver.polled()
    assert pulls._outstanding_bytes == pulls._window_bytes + 2 * PACKET
    receiver.ask(7, backlog_bytes=20 * PACKET)
    assert receiver.polled()[7].limit_bytes == 0


def test_forget__removes_everything_of_a_peer() -> None:
    receiver = asked(12, packets=5)
    receiver.polled()
    for peer in range(12):
        receiver.pulls.forget(peer, left=range(12, 20))
    pulls = receiver.pulls
    pulls.take_turns(now=receiver.now)
    assert (pulls._outstanding_bytes, pulls._outstanding, pulls._turns, pulls._active, pulls._queue) == (
        0, {}, {}, set(), [],
    )  # fmt: skip
    assert pulls.check_at is None


class Senders(RuleBasedStateMachine):
    """Honest senders and liars in any order: what is outstanding is counted exactly, and bounded."""

    def __init__(self) -> None:
        super().__init__()
        self.receiver = Receiver()
        self.largest_window_bytes = 0  # it may shrink while more is outstanding

    @rule(peer=st.sampled_from(MANY), backlog=st.integers(0, 20_000), lie=st.none() | st.integers(0, (1 << 64) - 1))
    def ask(self, peer: int, backlog: int, lie: int | None) -> None:
        self.receiver.ask(peer, backlog_bytes=backlog, sent_bytes=lie)

    @rule(peer=st.sampled_from(MANY), size=st.integers(1, 3 * PACKET), after_ms=st.integers(0, 5))
    def arrive(self, peer: int, size: int, after_ms: int) -> None:
        self.receiver.arrive(peer, size, after_s=after_ms / 1000)

    @rule(peer=st.sampled_from(MANY))
    def end(self, peer: int) -> None:
        self.receiver.pulls.forget(peer, left=MANY)

    @rule(after_ms=st.integers(0, 100))
    def wait(self, after_ms: int) -> None:
        self.receiver.now += after_ms / 1000

    @invariant()
    def is_consistent(self) -> None:
        pulls = self.receiver.pulls
        for pull in self.receiver.polled().values():
            assert pull.encode()
        outstanding = {peer: turns.outstanding_bytes for peer, turns in pulls._turns.items()}
        assert pulls._outstanding_bytes == sum(outstanding.values())
        assert set(pulls._outstanding) == {peer for peer, size in outstanding.items() if size}
        self.largest_window_bytes = max(self.largest_window_bytes, pulls._window_bytes)
        # The last turn may go beyond the window: by a packet, or by all that it repeats.
        most_bytes = max(outstanding.values(), default=0)
        assert pulls._outstanding_bytes - most_bytes <= self.largest_window_bytes
        assert most_bytes <= self.largest_window_bytes + PACKET
        assert pulls._shifts_bytes == sum(turns.shift_bytes for turns in pulls._turns.values())
        assert pulls._shifts_bytes <= 2 * CONFIG.receive_window_bytes
        assert not any(turns.shift_bytes for turns in pulls._waiting.values())
        assert set(pulls._waiting) <= pulls._active
        waiting = [turns.peer for _, _, turns in pulls._queue if turns.waits and pulls._turns.get(turns.peer) is turns]
        assert len(waiting) == len(set(waiting)) <= len(pulls._queue)
        times = [turns.pulled_at for turns in pulls._outstanding.values()]
        assert times == sorted(times)
        assert all(not math.isnan(at) for at in times)


TestSenders = Senders.TestCase
TestSenders.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
