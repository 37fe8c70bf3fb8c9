"""netns.backends.virtual.virtual_link: one direction of a link: the model's times, losses, marks, and being down."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netns.backends.virtual.event_queue import EventQueue
from netns.backends.virtual.virtual_link import HostArrivals, Packet, PacketEvent, PacketFlow, VirtualLink
from netns.netem.queue import Netem
from netns.netem.shape import Shape

SHAPES = st.builds(
    Shape,
    delay_us=st.integers(0, 50),
    jitter_us=st.integers(0, 60),
    loss_percent=st.sampled_from([0, 20]),
    rate_bps=st.sampled_from([0, 10**9]),
    limit_packets=st.integers(1, 20),
)


class Route:
    """Virtual links in a row, from h1 to h2, and the packets that arrived."""

    def __init__(self, *shapes: Shape | None, seed: int = 1) -> None:
        self.events = EventQueue()
        self.events.remaining = self.hand_over
        self.filled: list[HostArrivals] = []
        self.arrived: list[tuple[int, int]] = []
        self.marks: list[int] = []
        arrivals = HostArrivals(self.filled)
        arrivals.receive = self.receive
        self.virtual_links = tuple(
            VirtualLink(f"n{index}>n{index + 1}", shape=shape, seed=seed + index, events=self.events)
            for index, shape in enumerate(shapes)
        )
        self.flow = PacketFlow("10.0.1.1", 7, "10.0.2.1", 8, links=self.virtual_links, arrivals=arrivals)

    def receive(self, packets: list[Packet], now_ns: int) -> None:
        self.arrived += [(packet.number, now_ns) for packet in packets]
        self.marks += [packet.number for packet in packets if packet.marked]

    def hand_over(self, now_ns: int) -> None:
        filled = self.filled[:]
        self.filled.clear()
        for arrivals in filled:
            arrivals.deliver(now_ns)

    def send_at(self, at_ns: int, *, number: int, length_bytes: int = 1250) -> None:
        packet = Packet(self.flow, number=number, length_bytes=length_bytes, content=None)
        self.events.at(at_ns, lambda now_ns: self.virtual_links[0].transmit(packet, now_ns))

    def run(self) -> None:
        self.events.run(until_ns=10**9)


@given(SHAPES, st.lists(st.integers(0, 30_000), max_size=60))
def test_virtual_link__is_netems_model_on_an_agenda(shape: Shape, gaps: list[int]) -> None:
    route, model, at_ns = Route(shape, seed=5), Netem[int](shape, seed=5), 0
    expected: list[tuple[int, int]] = []

    def drain(until_ns: int) -> None:
        while (due_ns := model.next_at_ns) is not None and due_ns <= until_ns:
            due = model.dequeue(due_ns)
            assert due is not None
            expected.append((due[1], due[0]))

    for number, gap in enumerate(gaps):
        at_ns += gap + 1  # no two packets at the same time: their order would be undefined
        drain(at_ns - 1)
        route.send_at(at_ns, number=number)
        model.enqueue(at_ns, packet=number, length_bytes=1250)
    drain(10**9)
    route.run()
    netem = route.virtual_links[0].netem
    assert netem is not None
    assert route.arrived == expected
    assert (netem.dropped, netem.overlimit) == (model.dropped, model.overlimit)
    assert route.virtual_links[0].packets == len(route.arrived) == netem.delayed


def test_virtual_link__without_a_shape_takes_no_time() -> None:
    route = Route(None, Shape(delay_us=3), None)
    route.send_at(1000, number=1)
    route.run()
    assert route.arrived == [(1, 4000)]
    assert [
        (virtual_link.packets, virtual_link.bytes, virtual_link.left_at_ns) for virtual_link in route.virtual_links
    ] == [
        (1, 1250, 1000),
        (1, 1250, 4000),
        (1, 1250, 4000),
    ]


def test_virtual_link__packets_of_one_moment_come_as_one_batch_in_order() -> None:
    route = Route(Shape(delay_us=1))
    batches: list[list[int]] = []
    route.flow.arrivals.receive = lambda packets, _: batches.append([packet.number for packet in packets])
    for number, at_ns in enumerate((5, 5, 6, 6)):
        route.send_at(at_ns, number=number)
    route.run()
    assert batches == [[0, 1], [2, 3]]


def test_virtual_link__down_drops_arriving_and_held_packets() -> None:
    route = Route(Shape(delay_us=10), None)
    (virtual_link, _) = route.virtual_links

    def add(by: int) -> None:
        virtual_link.failures += by

    for number, at_ns in enumerate((0, 15_000, 25_000, 40_000)):
        route.send_at(at_ns, number=number)
    route.events.at(20_000, lambda _: add(1))
    route.events.at(26_000, lambda _: add(1))  # a second failure
    route.events.at(30_000, lambda _: add(-1))
    route.events.at(39_000, lambda _: add(-1))
    route.run()
    assert route.arrived == [(0, 10_000), (3, 50_000)]
    assert (virtual_link.blackholed, virtual_link.packets) == (2, 2)


def test_virtual_link__marks_packets_that_wait_longer_than_the_threshold() -> None:
    # 1,250 bytes take 10 us: the n-th of a burst waits (n - 1) x 10 us, and the delay does not count.
    route = Route(Shape(delay_us=500, rate_bps=10**9, ce_threshold_us=20))
    for number in range(1, 6):
        route.send_at(0, number=number)
    route.run()
    assert route.marks == [4, 5]
    assert route.virtual_links[0].marked == 2
    assert len(route.arrived) == 5


def test_wait_ns__now() -> None:
    route = Route(Shape(delay_us=5, rate_bps=10**9), None)
    route.send_at(0, number=1)
    route.events.run(until_ns=4000)
    assert [virtual_link.wait_ns for virtual_link in route.virtual_links] == [6000, 0]


def test_observe__reports_every_fate() -> None:
    # Seed 42424242 and 10 % loss drop packets 5, 12 and 24: the public vector of netem's PRNG.
    route = Route(Shape(delay_us=1, loss_percent=10, limit_packets=6), seed=42424242)
    records: list[PacketEvent] = []
    route.virtual_links[0].observe = records.append
    for number in range(1, 9):
        route.send_at(100, number=number)
    route.events.run(until_ns=5000)
    route.virtual_links[0].failures = 1
    route.send_at(6000, number=9)
    route.run()
    fates = {number: [r.fate for r in records if r.packet == number] for number in range(1, 10)}
    passed = {number: ["queued", "left"] for number in (1, 2, 3, 4, 6, 7)}
    assert fates == passed | {5: ["lost"], 8: ["overlimit"], 9: ["blackholed"]}
    assert records[0] == (100, "queued", "n0>n1", 1, "10.0.1.1:7>10.0.2.1:8", 1250, False)


def test_inbox__without_a_station_swallows() -> None:
    route = Route(None)
    route.flow.arrivals.receive = None
    route.send_at(0, number=1)
    route.run()
    assert route.arrived == []
    assert route.flow.arrivals.packets == []
