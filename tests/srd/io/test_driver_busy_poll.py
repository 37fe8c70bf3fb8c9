"""srd.io.driver: busy polling, coalescing in streams only, and the order of acks and replies."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from srd.io import driver, moderation, turn_policy
from srd.io.rx_buffers import SUPER_BYTES
from srd.io.timer import TimerFd
from srd.proto.events import Event, MessageReceived
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S, until
from tests.srd.io.exchange import wait_readable
from tests.srd.io.node import Node, completed, ended, fill, join, node, nodes, received
from tests.srd.io.trace import traced
from tests.srd.loopback import SMALL, content, memory, pair, receive, send

SEED = 13
SPINNING = replace(SMALL, busy_poll=True)


class Poller:
    """In place of an adaptive poller: what a driver asks of it."""

    def __init__(self, _loop: asyncio.AbstractEventLoop) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: self.calls.append(name)


@pytest.fixture
def pollers(monkeypatch: pytest.MonkeyPatch) -> list[Poller]:
    """Those of the drivers that the test makes; `suppress` is called by a turn that is coalesced with the next."""
    made: list[Poller] = []

    def make(loop: asyncio.AbstractEventLoop) -> Poller:
        made.append(Poller(loop))
        return made[-1]

    monkeypatch.setattr(driver, "AdaptivePoller", make)
    monkeypatch.setattr(moderation, "BUSY_S", PATIENCE_S)  # on a busy host turns are spaced out anyway
    return made


@pytest.mark.sources
async def test_busy_poll__ping_pong_a_stream_and_an_orderly_close(pollers: list[Poller]) -> None:
    payload = content(2 << 20, seed=SEED)
    async with pair(config=SPINNING) as (_, _, here, there):
        for _ in range(20):
            assert await send(here, b"ping") is Status.OK
            assert await receive(there) == b"ping"
        with memory(payload) as region:
            sending = here.post_send(region, offset=0, length=len(payload))
            assert await receive(there) == payload
            assert await sending is Status.OK
        assert not any(poller.calls for poller in pollers), "turns are not coalesced"
        await here.close()


async def test_busy_poll__polls_until_the_close_and_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    polls, make = 0, select.epoll

    class Counting:
        def __init__(self) -> None:
            self._epoll = make()

        def poll(self, timeout: float, maxevents: int = -1) -> list[tuple[int, int]]:
            nonlocal polls
            polls += 1
            return self._epoll.poll(timeout, maxevents)

        def __getattr__(self, name: str) -> object:
            return getattr(self._epoll, name)

    monkeypatch.setattr(select, "epoll", Counting)
    async with pair(config=SPINNING):
        before = polls
        await until(lambda: polls > before + 100 * driver.SPINS / 16)  # no other event makes it poll


@pytest.mark.sources
async def test_poll__reads_while_it_has_something_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_policy, "REPLIES_WITHIN_S", 0)
    async with traced(monkeypatch) as (one, two, trace):
        send_now(one, to=two)
        two.post(100)
        trace.steps.clear()
        assert two.driver.poll()
        assert trace.of("read", "data") == "read data"


@pytest.mark.sources
async def test_poll__reads_nothing_while_a_reply_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    async with traced(monkeypatch, poll_s=(0, PATIENCE_S)) as (one, two, trace):
        send_now(one, to=two)
        assert two.driver.poll()
        assert two.driver.yields
        send_now(one, to=two)
        two.post(100)
        trace.steps.clear()
        assert two.driver.poll()
        assert trace.of("read", "data") == "data"


@pytest.mark.sources
async def test_poll__that_finds_nothing_does_not_keep_the_next_turn_from_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That turn reads before it handles timeouts, or what was acknowledged is declared lost."""
    async with traced(monkeypatch) as (one, two, trace):
        two.driver.wake()
        assert two.driver.poll()
        send_now(one, to=two)
        trace.steps.clear()
        await two.until(received)
        assert trace.steps[0] == "read"


def send_now(one: Node, *, to: Node) -> None:
    """Send a message of a packet, and return when it is in the other end's socket."""
    one.post(100)
    one.driver.flush()
    wait_readable(to.sockets[0])


@pytest.mark.sources
async def test_rx_coalesce__only_in_a_stream(pollers: list[Poller]) -> None:
    async with node(accepting=True) as two, node(accepting=False) as one:
        poller_of_two, poller_of_one = pollers
        await join(one, two)
        for number in range(20):
            await one.post_in_turn(1, (100, 64 << 10)[number % 2])
            assert "suppress" not in poller_of_one.calls + poller_of_two.calls
        one.post(4 << 20)
        await two.until(received, count=21)
        await one.until(completed, count=21)
        assert "suppress" in poller_of_one.calls
        assert "suppress" in poller_of_two.calls
        poller_of_two.calls.clear()
        for _ in range(200):  # messages of a packet each, many at once
            one.post(9000)
        await two.until(received, count=221)
        assert "suppress" in poller_of_two.calls


@pytest.mark.sources
async def test_rx_coalesce__also_in_a_stream_of_short_messages(
    pollers: list[Poller], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ack completes some of them: this is no ping-pong."""
    monkeypatch.setattr(moderation, "MIN_PAUSE_S", 0.0)  # both ends share a process, whatever the rate
    async with nodes(poll_s=(PATIENCE_S, 0)) as (one, _):
        calls = pollers[1].calls
        calls.clear()
        for _ in range(100):
            one.post(64 << 10)
        await one.until(completed, count=100)
        assert calls.count("suppress") > calls.count("extend")
        assert not one.driver.yields


@pytest.mark.sources
@pytest.mark.parametrize("window_s", [0.0, PATIENCE_S])
async def test_adaptive_poller__extended_by_closely_spaced_messages_and_not_by_streams(
    window_s: float, pollers: list[Poller], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moderation, "MIN_PAUSE_S", 0.0)  # both ends share a process, whatever the rate
    async with nodes(poll_s=(window_s, 0)) as (one, _):
        calls = pollers[1].calls
        calls.clear()
        one.post(100)
        await one.until(completed)
        await asyncio.sleep(0)
        assert set(calls) == ({"extend"} if window_s else set())
        one.post(4 << 20)
        await one.until(completed, count=2)
        await asyncio.sleep(0)
        assert "suppress" in calls


@pytest.mark.sources
@pytest.mark.parametrize("length", [100, turn_policy.BULK_BYTES, 60_000])
@pytest.mark.parametrize(
    "scheduled",
    [(), ("wake",), ("wake", "_on_timer"), ("_on_readable",)],
    ids=["", "a turn was scheduled before the message came", "and the timer has expired", "sockets are readable"],
)
async def test_reply__precedes_the_ack_in_a_ping_pong(
    length: int, scheduled: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is reply, ack, then the control packets that arrived with the message.

    `scheduled`: what the event loop has yet to call when it calls the application.
    """
    loop = asyncio.get_running_loop()
    async with traced(monkeypatch, poll_s=(PATIENCE_S, PATIENCE_S)) as (one, two, trace):
        if "_on_timer" in scheduled:
            monkeypatch.setattr(TimerFd, "acknowledge", lambda _: True)

        def answering(node: Node) -> Callable[[Event], None]:
            """Have a node reply to each message with one of the same length."""

            def reacts(event: Event) -> None:
                if isinstance(event, MessageReceived):
                    if node is two:
                        trace.steps.append("message")
                    for name in scheduled:
                        call = getattr(node.driver, name)
                        call() if name == "wake" else loop.call_soon(call)
                    loop.call_soon(node.post, length)

            return reacts

        one.reacts, two.reacts = answering(one), answering(two)
        one.post(length)
        await two.until(received, count=10)
        assert "message data ack controls" in trace.of("message", "data", "ack", "controls")


@pytest.mark.sources
async def test_after_delivery__a_reply_goes_out_in_the_same_turn_and_precedes_the_ack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also in the first turn after a rest, when no application is waited for."""
    async with traced(monkeypatch) as (one, two, trace):

        def reply() -> bool:
            trace.steps.append("delivered")
            two.post(100)
            return True

        def reacts(event: Event) -> None:
            if isinstance(event, MessageReceived):
                trace.steps.append("message")
                two.driver.after_delivery(reply)

        two.reacts = reacts
        for number in range(10):
            one.post(100)
            await one.until(received, count=number + 1)
        order = trace.of("read", "message", "delivered", "data", "ack")
        assert order.count("read message delivered data ack") == order.count("delivered") == 10


@pytest.mark.sources
async def test_wake__within_a_turn_that_sends_causes_no_other_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_policy, "REPLIES_WITHIN_S", 0)
    async with traced(monkeypatch) as (one, two, trace):
        trace.steps.clear()
        two.reacts = lambda _: two.driver.wake()
        for _ in range(20):
            await one.post_in_turn(1, 100)
            await asyncio.sleep(0)
        assert sum(map(received, two.events)) == 20
        assert "idle idle" not in trace.of("deadlines", "idle"), "a turn that did not read"


@pytest.mark.sources
async def test_read__goes_on_while_a_message_arrives_in_whole_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn reads all of a message of nine trains, though four batches of one train end the reading of a socket."""
    async with traced(monkeypatch) as (one, two, trace):
        payload = fill(one, 560_000)
        two.queue.batch_messages = 1
        await one.post_in_turn(6, len(payload))
        assert len(payload) in trace.read_bytes
        assert max(trace.read_bytes) < driver.TURN_BYTES + driver.BATCHES_PER_TURN * SUPER_BYTES


@pytest.mark.sources
async def test_reply__an_application_without_one_delays_no_ack(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ack is sent a turn of the loop later, before the sender probes."""
    order = await _without_replies(monkeypatch)
    assert order.count("ack") >= 20
    assert "read event read event read" not in order.replace(" deadlines", ""), "a message and a probe for it"


@pytest.mark.sources
async def test_reply__deadlines_are_checked_when_every_turn_receives_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a busy server would never detect the loss of its replies."""
    assert "event ack deadlines" in await _without_replies(monkeypatch)


async def _without_replies(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the order of reads, events, acks and deadlines at an end that gets twenty messages, one at a time."""
    async with traced(monkeypatch, paths=4, poll_s=(0, PATIENCE_S)) as (one, _, trace):
        await one.post_in_turn(20, 100)
        return trace.of("read", "event", "ack", "deadlines")


@pytest.mark.sources
async def test_reply__an_application_may_close_at_once_when_a_peer_ends() -> None:
    """The other end gets its CLOSE before that, and need not probe."""
    loop = asyncio.get_running_loop()
    async with nodes(poll_s=(0, PATIENCE_S)) as (one, two):

        def reacts(event: Event) -> None:
            if ended(event):
                loop.call_soon(two.driver.close)

        two.reacts = reacts
        await one.post_in_turn(3, 100)
        one.core.close(one.peer, now=time.monotonic())
        one.driver.wake()
        event = await one.end()
        assert event.reason == "closed"
