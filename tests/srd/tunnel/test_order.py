"""The order of inner flows: hostile numbers, and a state machine against a plain model."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


# -- the other end lies ------------------------------------------------------------------------------------------------


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
