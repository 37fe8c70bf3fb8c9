"""The order of inner flows: examples of each rule, hostile numbers, and a state machine against a plain model."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from srd.tunnel.order import HELD_PACKET_BYTES, FlowOrder

HOLD_S = 0.05
SERIALS = 1 << 32


class Memory:
    """What packets lie in: it is kept as long as one of them is held."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.held = 0

    def hold(self) -> int:
        self.held += 1
        return self.size_bytes if self.held == 1 else 0

    def let_go(self) -> int:
        self.held -= 1
        return 0 if self.held else self.size_bytes


@dataclass
class Packet:
    name: str
    memory: Memory

    def hold(self) -> int:
        return self.memory.hold()

    def let_go(self) -> int:
        return self.memory.let_go()


def order(*, packets: int = 1000) -> FlowOrder[Packet]:
    """With room for so many packets of 100 bytes."""
    return FlowOrder(limit_bytes=packets * (100 + HELD_PACKET_BYTES))


def take(
    flows: FlowOrder[Packet],
    *numbers: int,
    flow: int = 0,
    now: float = 0.0,
    hold_s: float = HOLD_S,
    memory: Memory | None = None,
) -> list[list[str]]:
    """What is handed over at each of the arrivals: packets are named flow:number. `memory`: all lie in it."""
    return [
        named(
            flows.take(
                Packet(f"{flow}:{number}", memory or Memory(100)), flow=flow, sequence=number, now=now, hold_s=hold_s
            )
        )
        for number in numbers
    ]


def named(packets: Iterable[Packet]) -> list[str]:
    return [packet.name for packet in packets]


def names(numbers: Iterable[int], *, flow: int = 0) -> list[str]:
    return [f"{flow}:{number}" for number in numbers]


# -- the rules, one by one ---------------------------------------------------------------------------------------------


def test_take__in_order_goes_at_once() -> None:
    flows = order()
    assert take(flows, 0, 1, 2) == [["0:0"], ["0:1"], ["0:2"]]
    assert flows.next_at is None
    assert (flows.held_bytes, flows.reordered, flows.late, flows.given_up) == (0, 0, 0, 0)


def test_take__what_follows_the_gap_goes_when_it_closes() -> None:
    flows = order()
    assert take(flows, 0, 2, 4, 3, 1) == [["0:0"], [], [], [], names([1, 2, 3, 4])]
    assert (flows.held_bytes, flows.reordered, flows.given_up) == (0, 3, 0)
    assert flows.next_at is None


def test_take__up_to_the_next_gap_only() -> None:
    flows = order()
    assert take(flows, 1, 2, 4, 5, 0) == [[], [], [], [], names([0, 1, 2])]
    assert take(flows, 3) == [names([3, 4, 5])]


def test_take__flows_do_not_wait_for_each_other() -> None:
    flows = order()
    take(flows, 1, flow=7)
    assert take(flows, 0, 1, 2, flow=8) == [["8:0"], ["8:1"], ["8:2"]]
    assert take(flows, 0, flow=7) == [names([0, 1], flow=7)]


def test_take__numbers_wrap() -> None:
    flows = order()
    flows._expected[0] = SERIALS - 2
    assert take(flows, SERIALS - 1, 1, 0, SERIALS - 2) == [[], [], [], names([SERIALS - 2, SERIALS - 1, 0, 1])]
    assert take(flows, 2) == [["0:2"]]


def test_expire__lets_go_up_to_the_next_gap() -> None:
    flows = order()
    take(flows, 1, 2, now=0.0)
    take(flows, 5, now=0.01)
    assert flows.next_at == HOLD_S
    assert flows.expire(now=math.nextafter(HOLD_S, 0.0)) == []
    assert named(flows.expire(now=HOLD_S)) == names([1, 2])
    assert flows.next_at == pytest.approx(0.01 + HOLD_S)
    assert named(flows.expire(now=1.0)) == names([5])
    assert (flows.given_up, flows.held_bytes) == (2, 0)
    assert flows.expire(now=math.inf) == []


def test_expire__a_packet_that_waited_takes_along_what_is_before_it() -> None:
    flows = order()
    take(flows, 9, now=0.0)
    take(flows, 4, now=0.04)
    take(flows, 10, now=0.04)
    assert named(flows.expire(now=HOLD_S)) == names([4, 9, 10])
    assert flows.given_up == 2


def test_expire__each_packet_has_its_own_hold_time() -> None:
    flows = order()
    take(flows, 9, now=0.0, hold_s=1.0)
    take(flows, 4, now=0.1, hold_s=0.1)
    assert flows.next_at == pytest.approx(0.2)
    assert named(flows.expire(now=0.2)) == names([4])
    assert flows.next_at == pytest.approx(1.0)


def test_take__late_goes_at_once() -> None:
    flows = order()
    take(flows, 2)
    flows.expire(now=HOLD_S)
    assert take(flows, 1, 0, 3) == [["0:1"], ["0:0"], ["0:3"]]
    assert flows.late == 2


def test_take__twice_the_same_number_is_handed_over_twice() -> None:
    flows = order()
    assert take(flows, 2, 2, 0, 1, 1) == [[], [], ["0:0"], names([1, 2, 2]), ["0:1"]]
    assert (flows.held_bytes, flows.late, flows.next_at) == (0, 1, None)


def test_take__over_the_limit_the_oldest_gap_is_given_up() -> None:
    flows = order(packets=3)
    take(flows, 1, flow=1, now=0.0)
    take(flows, 1, flow=2, now=0.01)
    take(flows, 2, flow=1, now=0.02)
    assert take(flows, 2, flow=2, now=0.03) == [names([1, 2], flow=1)]
    assert (flows.given_up, flows.overflows) == (1, 1)
    assert flows.next_at == pytest.approx(0.01 + HOLD_S)


def test_take__more_than_the_limit_by_itself() -> None:
    flows: FlowOrder[Packet] = FlowOrder(limit_bytes=1000)
    assert take(flows, 5, memory=Memory(65_535)) == [names([5])]
    assert (flows.held_bytes, flows.overflows) == (0, 1)


def test_take__memory_that_packets_share_counts_as_long_as_one_of_them_is_held() -> None:
    flows = order()
    shared = Memory(250_000)
    assert take(flows, 1, 3, memory=shared) == [[], []]
    assert flows.held_bytes == 250_000 + 2 * HELD_PACKET_BYTES
    assert take(flows, 0) == [names([0, 1])]
    assert flows.held_bytes == 250_000 + HELD_PACKET_BYTES
    assert take(flows, 2) == [names([2, 3])]
    assert flows.held_bytes == 0


def test_take__over_the_limit_memory_that_is_still_shared_counts() -> None:
    flows = order(packets=4)
    shared = Memory(700)
    take(flows, 1, flow=1, memory=shared, now=0.0)
    take(flows, 1, flow=2, now=0.01)
    assert take(flows, 1, flow=3, memory=shared, now=0.02) == [names([1], flow=1)]
    assert flows.held_bytes == 700 + 100 + 2 * HELD_PACKET_BYTES


def test_flush__all_of_it_in_order_and_from_0_again() -> None:
    flows = order()
    take(flows, 3, 1, flow=1)
    take(flows, 2, flow=2)
    assert sorted(named(flows.flush())) == ["1:1", "1:3", "2:2"]
    assert (flows.held_bytes, flows.next_at) == (0, None)
    assert take(flows, 0, 1, flow=1) == [["1:0"], ["1:1"]]


# -- the other end lies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [1, 1000, (1 << 31) - 1])
def test_hostile__a_jump_forward_costs_one_hold_time(jump: int) -> None:
    flows = order()
    take(flows, 0)
    assert take(flows, 1 + jump) == [[]]
    assert named(flows.expire(now=HOLD_S)) == names([1 + jump])
    assert take(flows, 2 + jump) == [names([2 + jump])]
    assert (flows.given_up, flows.next_at) == (1, None)


def test_hostile__a_restart_from_0_is_never_held() -> None:
    flows = order()
    take(flows, *range(1000))
    assert take(flows, *range(1000)) == [[name] for name in names(range(1000))]
    assert flows.late == 1000
    assert take(flows, 1000, 1002, 1001) == [["0:1000"], [], names([1001, 1002])]


class Smallest:
    """A packet of a byte in memory of its own."""

    def hold(self) -> int:
        return 1

    def let_go(self) -> int:
        return 1


def test_hostile__memory_is_bounded() -> None:
    """Every flow, numbers that jump, and the smallest packets, many times: what is kept depends on the limits."""
    flows: FlowOrder[Smallest] = FlowOrder(limit_bytes=1 << 20)
    packet = Smallest()
    randomness = random.Random(2023)
    tracemalloc.start()
    try:
        for turn in range(50_000):
            flow, sequence = randomness.randrange(1 << 16), randomness.randrange(SERIALS)
            flows.take(packet, flow=flow, sequence=sequence, now=turn * 1e-6, hold_s=HOLD_S)
            assert flows.held_bytes <= 1 << 20
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(flows._deadlines) <= 2 * ((1 << 20) // HELD_PACKET_BYTES) + 64 + 1
    assert kept < 12 << 20


def test_hostile__deadlines_of_what_left_do_not_pile_up() -> None:
    flows = order()
    take(flows, 1, flow=1, hold_s=1000.0)  # stays: its deadline is not the earliest
    take(flows, 1, flow=2, hold_s=1.0)  # stays on top of all others
    for pair in range(10_000):
        take(flows, 2 * pair + 1, 2 * pair, flow=3, hold_s=2.0)
    assert len(flows._deadlines) <= 70


# -- any traffic -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrival:
    flow: int
    number: int  # without the wrap
    memory: Memory
    due_at: float
    arrival: int

    def hold(self) -> int:
        return self.memory.hold()

    def let_go(self) -> int:
        return self.memory.let_go()


class OrderMachine(RuleBasedStateMachine):
    """Beside a model that keeps plain lists and searches all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.arrivals = 0
        self.memory = Memory(0)
        self.handed_over: set[int] = set()
        self.held: list[Arrival] = []
        self.expected: dict[int, int] = {}
        self.late = self.given_up = self.overflows = 0

    @initialize(
        limit_bytes=st.integers(0, 4000), start=st.sampled_from([0, SERIALS - 3, SERIALS // 2 - 3, 5 * SERIALS])
    )
    def create(self, limit_bytes: int, start: int) -> None:
        self.limit_bytes = limit_bytes
        self.flows: FlowOrder[Arrival] = FlowOrder(limit_bytes=limit_bytes)
        self.expected = dict.fromkeys(range(3), start)
        self.flows._expected.update(self.expected)

    @rule(
        flow=st.integers(0, 2),
        distance=st.integers(-3, 6) | st.sampled_from([1000, SERIALS // 2 - 1, SERIALS // 2, -SERIALS // 2 + 1]),
        size_bytes=st.integers(1, 900),
        hold_s=st.sampled_from([0.0, 1.0, 2.5]),
        shares=st.booleans(),
    )
    def take(self, flow: int, distance: int, size_bytes: int, hold_s: float, *, shares: bool) -> None:
        number = self.expected[flow] + distance
        self.arrivals += 1
        if not shares:  # else it lies in the memory of the packet before it
            self.memory = Memory(size_bytes)
        packet = Arrival(flow, number, self.memory, self.now + hold_s, self.arrivals)
        got = self.flows.take(packet, flow=flow, sequence=number % SERIALS, now=self.now, hold_s=hold_s)
        if distance < 0 or distance == SERIALS // 2:
            self.late += 1
            self.check(got, [packet])
        elif distance == 0:
            self.expected[flow] += 1
            self.check(got, [packet, *self.followers(flow)])
        else:
            self.held.append(packet)
            self.check(got, self.fitted())

    @rule(elapsed_s=st.sampled_from([0.0, 0.5, 1.0, 7.0]))
    def advance(self, elapsed_s: float) -> None:
        """Time passes; `expire` is called at each deadline, as the gateway does."""
        end = self.now + elapsed_s
        while (at := self.flows.next_at) is not None and at <= end:
            self.now = max(self.now, at)
            expected: list[Arrival] = []
            while due := [packet for packet in self.held if packet.due_at <= self.now]:
                expected += self.given_up_before(self.first(due))
            assert expected, "next_at was too early"
            self.check(self.flows.expire(now=self.now), expected)
        self.now = end
        assert self.flows.expire(now=end) == []
        assert all(packet.due_at > self.now for packet in self.held), "held too long"

    @rule()
    def flush(self) -> None:
        expected: list[Arrival] = []
        while self.held:
            expected += self.given_up_before(self.first(self.held))
        self.check(self.flows.flush(), expected)
        self.expected = dict.fromkeys(range(3), 0)

    @invariant()
    def same_counters(self) -> None:
        assert self.flows.held_bytes == self.held_bytes() <= self.limit_bytes
        assert (self.flows.late, self.flows.given_up) == (self.late, self.given_up)
        assert self.flows.overflows == self.overflows
        assert self.flows.next_at == min((packet.due_at for packet in self.held), default=None)
        assert all(packet.number > self.expected[packet.flow] for packet in self.held), "held for no gap"
        assert len(self.handed_over) + len(self.held) == self.arrivals, "each exactly once"

    def check(self, got: Sequence[Arrival], expected: list[Arrival]) -> None:
        assert list(got) == expected
        assert self.handed_over.isdisjoint(packet.arrival for packet in got)
        self.handed_over.update(packet.arrival for packet in got)

    def held_bytes(self) -> int:
        kept = {id(packet.memory): packet.memory.size_bytes for packet in self.held}
        return sum(kept.values()) + HELD_PACKET_BYTES * len(self.held)

    @staticmethod
    def first(packets: list[Arrival]) -> Arrival:
        return min(packets, key=lambda packet: (packet.due_at, packet.flow, packet.number))

    def of_flow(self, flow: int) -> list[Arrival]:
        return sorted(
            (packet for packet in self.held if packet.flow == flow), key=lambda packet: (packet.number, packet.arrival)
        )

    def followers(self, flow: int) -> list[Arrival]:
        """Remove from the model what follows the expected number without a gap."""
        found = []
        for packet in self.of_flow(flow):
            if packet.number <= self.expected[flow]:
                self.expected[flow] = max(self.expected[flow], packet.number + 1)
                self.held.remove(packet)
                found.append(packet)
        return found

    def given_up_before(self, due: Arrival) -> list[Arrival]:
        """Remove what is held up to this packet, each gap before it being given up, and what follows it."""
        found: list[Arrival] = []
        while due in self.held:
            self.given_up += 1
            self.expected[due.flow] = self.of_flow(due.flow)[0].number
            found += self.followers(due.flow)
        return found

    def fitted(self) -> list[Arrival]:
        found: list[Arrival] = []
        while self.held_bytes() > self.limit_bytes:
            before = self.given_up
            found += self.given_up_before(self.first(self.held))
            self.overflows += self.given_up - before
        return found


TestFlowOrder = OrderMachine.TestCase
TestFlowOrder.settings = settings(max_examples=100, stateful_step_count=40)
