"""srd.io.driver: busy polling, coalescing in streams only, and the order of acks and replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from srd.io import driver, moderation
from srd.io.driver import DriverState
from srd.io.rx_buffers import SUPER_BYTES
from srd.proto.events import Event, MessageReceived, PeerEnded, PeerOpened
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.io.node import Node, completed, ended, fill, node, open_pair, opened, received
from tests.srd.loopback import SMALL, content, memory, pair, receive, send

SEED = 13
SPINNING = replace(SMALL, busy_poll=True)


async def test_busy_poll__ping_pong_and_an_orderly_close() -> None:
    payload = content(2 << 20, seed=SEED)
    async with pair(config=SPINNING) as (one, _, here, there):
        for _ in range(20):
            assert await send(here, b"ping") is Status.OK
            assert await receive(there) == b"ping"
        with memory(payload) as region:
            sending = here.post_send(region, offset=0, length=len(payload))
            assert await receive(there) == payload
            assert await sending is Status.OK
        assert one._engine._driver._coalesce_until is None
        await here.close()


async def test_busy_poll__does_not_block_other_tasks() -> None:
    async with asyncio.timeout(PATIENCE_S), pair(config=SPINNING):
        await asyncio.sleep(0.01)  # returns: busy polling yields to the loop


async def test_busy_poll__polls_until_the_close() -> None:
    async with pair(config=SPINNING) as (one, _, _, _):
        turns = 0
        poll = one._engine._driver._epoll.poll

        class Counting:
            def poll(self, timeout: float, maxevents: int = -1) -> list[tuple[int, int]]:
                nonlocal turns
                turns += 1
                return poll(timeout, maxevents)

            def __getattr__(self, name: str) -> object:
                return getattr(one_epoll, name)

        one_epoll = one._engine._driver._epoll
        one._engine._driver._epoll = Counting()  # type: ignore[assignment]  # what is used of it
        async with asyncio.timeout(PATIENCE_S):  # no other event makes it poll
            while turns <= 100 * driver.SPINS / 16:  # noqa: ASYNC110 - the driver has no event for it
                await asyncio.sleep(0)
        one._engine._driver._epoll = one_epoll


@pytest.mark.sources
@pytest.mark.parametrize(("answering", "read"), [(False, True), (True, False)])
async def test_busy_poll__reads_while_it_has_more_to_send_unless_a_reply_is_due(answering: bool, read: bool) -> None:  # noqa: FBT001 - a case
    async with pair(config=SPINNING) as (one, _, _, _):
        turns: list[bool] = []

        class Ready:
            def poll(self, _timeout: float, _maxevents: int) -> list[tuple[int, int]]:
                return [(0, 0)]

        spinning, epoll = one._engine._driver, one._engine._driver._epoll
        spinning._epoll = Ready()  # type: ignore[assignment]  # what is used of it
        spinning._turn = lambda *, read: turns.append(read)  # type: ignore[method-assign]
        spinning._wake_due = True
        spinning._state = DriverState.YIELDED if answering else DriverState.WAITING
        spinning._spin()
        assert turns == [read]
        assert not spinning._wake_due
        spinning._epoll, spinning._state, spinning._ready = epoll, DriverState.WAITING, None
        del spinning._turn


@pytest.mark.sources
async def test_poll__that_finds_nothing_to_read_does_not_keep_the_next_turn_from_looking() -> None:
    """A timer's turn reads before it handles timeouts, or what was acknowledged is declared lost."""
    async with pair(config=SPINNING) as (one, _, _, _):
        driver_of_one = one._engine._driver
        driver_of_one._wake_due = True
        assert driver_of_one.poll()
        assert driver_of_one._ready is None


@pytest.mark.sources
async def test_rx_coalesce__only_in_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moderation, "BUSY_S", PATIENCE_S)  # on a busy host turns are spaced out anyway
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        for request in range(20):
            one.post(peer, request=request, offset=0, length=(100, 64 << 10)[request % 2])
            await one.until(completed, count=request + 1)
            assert one.driver._coalesce_until is two.driver._coalesce_until is None
        rested = {one.driver: False, two.driver: False}
        enter = driver.Driver._enter

        def recording(self: driver.Driver, state: DriverState) -> None:
            enter(self, state)
            rested[self] |= state is DriverState.COALESCING

        monkeypatch.setattr(driver.Driver, "_enter", recording)
        one.post(peer, request=20, offset=0, length=4 << 20)
        await two.until(received, count=21)
        await one.until(completed, count=21)
        assert all(rested.values())
        rested[two.driver] = False
        for request in range(21, 221):  # messages of a packet each, many at once
            one.post(peer, request=request, offset=0, length=9000)
        await two.until(received, count=221)
        assert rested[two.driver]


class Recorder:
    """Replaces the adaptive poller."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: self.calls.append(name)


@pytest.mark.sources
async def test_adaptive_poller__extended_by_closely_spaced_messages_and_not_by_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moderation, "BUSY_S", PATIENCE_S)  # on a busy host turns are spaced out anyway
    monkeypatch.setattr(moderation, "MIN_PAUSE_S", 0.0)  # and both ends share a process, whatever the rate
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)

        async def exchange(request: int, *, length: int) -> list[str]:
            one.driver._poller = recorder = Recorder()  # type: ignore[assignment]
            one.post(peer, request=request, offset=0, length=length)
            await one.until(completed, count=request + 1)
            await asyncio.sleep(0)
            return recorder.calls

        one.driver._adaptive_poll_s = 0.0
        assert await exchange(0, length=100) == []
        one.driver._adaptive_poll_s = PATIENCE_S
        assert set(await exchange(1, length=100)) == {"extend"}
        assert "suppress" in await exchange(2, length=4 << 20)


def recording(note: Callable[[str], None], what: str, do: Callable[..., Any]) -> Callable[..., Any]:
    """Return `do`, wrapped so that each call is recorded."""

    def recorded(*args: Any) -> Any:
        note(what)
        return do(*args)

    return recorded


@pytest.mark.sources
@pytest.mark.parametrize("length", [100, driver.BULK_BYTES, 60_000])
@pytest.mark.parametrize(
    "scheduled",
    [(), ("wake",), ("wake", "_on_timer"), ("_on_readable",)],
    ids=["", "a turn was scheduled before the message came", "and the timer has expired", "sockets are readable"],
)
async def test_reply__precedes_the_ack_in_a_ping_pong(length: int, scheduled: tuple[str, ...]) -> None:
    """The order is reply, ack, then the control packets that arrived with the message.

    `scheduled`: what the event loop has yet to call when it calls the application.
    """
    async with node(accepting=True, paths=1) as two, node(accepting=False, paths=1) as one:
        peers = {one: await open_pair(one, two)}
        (opening,) = await two.until(opened)
        assert isinstance(opening, PeerOpened)
        peers[two] = opening.peer
        rounds: list[list[str]] = []  # what `two` did after each message

        def answering(node: Node) -> None:
            """Have a node reply to each message with one of the same length."""

            def on_event(event: Event) -> None:
                node.on_event(event)
                if isinstance(event, MessageReceived):
                    if node is two:
                        rounds.append([])
                    for name in scheduled:
                        call = getattr(node.driver, name)
                        call() if name == "wake" else loop.call_soon(call)
                    number = sum(map(received, node.events))
                    loop.call_soon(lambda: node.post(peers[node], request=number, offset=0, length=length))

            node.driver._on_event = on_event

        def note(what: str) -> None:
            if rounds:
                rounds[-1].append(what)

        def handle(*args: Any, **named: Any) -> Any:
            if named["controls"]:
                note("controls")
            return handle_packets(*args, **named)

        handle_packets = two.core.handle_packets
        loop = asyncio.get_running_loop()
        for each in (one, two):
            fill(each, 4 << 20)
            each.driver._adaptive_poll_s = PATIENCE_S
            answering(each)
        if "_on_timer" in scheduled:
            two.driver._timer.acknowledge = lambda: True  # type: ignore[method-assign]  # it has always expired
        two.driver._transmitter.flush = recording(note, "reply", two.driver._transmitter.flush)  # type: ignore[method-assign]
        two.driver._send_datagram = recording(note, "ack", two.driver._send_datagram)  # type: ignore[method-assign]
        two.core.handle_packets = handle  # type: ignore[method-assign]
        one.post(peers[one], request=0, offset=0, length=length)
        await two.until(received, count=10)
        assert ["reply", "ack", "controls"] in rounds


@pytest.mark.sources
async def test_after_delivery__a_reply_goes_out_in_the_same_turn_and_precedes_the_ack() -> None:
    """Also in the first turn after a rest, when no application is waited for."""
    async with node(accepting=True, paths=1) as two, node(accepting=False, paths=1) as one:
        peer = await open_pair(one, two)
        (opening,) = await two.until(opened)
        assert isinstance(opening, PeerOpened)
        turns: list[list[str]] = []  # what `two` did in each
        fill(one, 4 << 20)
        fill(two, 4 << 20)

        def reply() -> bool:
            turns[-1].append("delivered")
            two.post(opening.peer, request=len(turns), offset=0, length=100)
            return True

        def on_event(event: Event) -> None:
            two.on_event(event)
            if isinstance(event, MessageReceived):
                turns[-1].append("message")
                two.driver.after_delivery(reply)

        def turn(*, read: bool) -> None:
            turns.append([])
            take_turn(read=read)

        def note(what: str) -> None:
            turns[-1].append(what)

        take_turn = two.driver._turn
        two.driver._turn = turn  # type: ignore[method-assign]
        two.driver._on_event = on_event
        two.driver._transmitter.flush = recording(note, "reply", two.driver._transmitter.flush)  # type: ignore[method-assign]
        two.driver._send_datagram = recording(note, "ack", two.driver._send_datagram)  # type: ignore[method-assign]
        for request in range(10):
            one.post(peer, request=request, offset=0, length=100)
            await one.until(received, count=request + 1)
        assert sum(turn.count("message") for turn in turns) == 10
        for each in turns:
            if "message" in each:
                assert each[each.index("delivered") :][:3] == ["delivered", "reply", "ack"]
                assert each.count("delivered") == 1


@pytest.mark.sources
async def test_wake__within_a_turn_that_sends_causes_no_other_turn() -> None:
    async with node(accepting=True, paths=1) as two, node(accepting=False, paths=1) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        turns: list[bool] = []

        def on_event(event: Event) -> None:
            two.on_event(event)
            two.driver.wake()

        def turn(*, read: bool) -> None:
            turns.append(read)
            take_turn(read=read)

        take_turn = two.driver._turn
        two.driver._turn, two.driver._on_event = turn, on_event  # type: ignore[method-assign]
        for request in range(20):
            one.post(peer, request=request, offset=0, length=100)
            await one.until(completed, count=request + 1)
            await asyncio.sleep(0)
        assert sum(map(received, two.events)) == 20
        assert False not in turns


@pytest.mark.sources
async def test_read__goes_on_while_a_message_arrives_in_whole_trains() -> None:
    """A turn reads all of a message of nine trains, though four batches of one train end the reading of a socket."""
    async with node(accepting=True, paths=1) as two, node(accepting=False, paths=1) as one:
        peer = await open_pair(one, two)
        payload = fill(one, 560_000)
        two.driver._queue.batch_messages = 1
        turns: list[list[int]] = []  # of each message: what each turn has read of it
        finish_turn = two.driver._finish_turn

        def finishing(*, read: bool, answered: bool) -> bool:
            if size_bytes := two.driver._this_turn.read_bytes:
                turns[-1].append(size_bytes)
            return finish_turn(read=read, answered=answered)

        two.driver._finish_turn = finishing  # type: ignore[method-assign]
        for request in range(6):
            turns.append([])
            one.post(peer, request=request, offset=0, length=len(payload))
            await one.until(completed, count=request + 1)
        assert [len(payload)] in turns
        assert max(map(max, turns)) < driver.TURN_BYTES + driver.BATCHES_PER_TURN * SUPER_BYTES


@pytest.mark.sources
async def test_reply__an_application_without_one_delays_no_ack() -> None:
    """The ack is sent a turn of the loop later, before the sender probes."""
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        two.driver._adaptive_poll_s = PATIENCE_S
        turns: list[str] = []

        two.driver._read = recording(turns.append, "read", two.driver._read)  # type: ignore[method-assign]
        two.driver._send_datagram = recording(turns.append, "ack", two.driver._send_datagram)  # type: ignore[method-assign]
        for request in range(20):
            one.post(peer, request=request, offset=0, length=100)
            await one.until(completed, count=request + 1)
        assert turns.count("ack") >= 20
        assert "read read read" not in " ".join(turns), "a message and a probe for it"


@pytest.mark.sources
async def test_reply__deadlines_are_checked_when_every_turn_receives_a_message() -> None:
    """Otherwise a busy server would never detect the loss of its replies."""
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        two.driver._adaptive_poll_s = PATIENCE_S
        turns: list[str] = []
        two.core.handle_timeout = recording(turns.append, "deadlines", two.core.handle_timeout)  # type: ignore[method-assign]
        two.driver._on_event = recording(turns.append, "event", two.on_event)
        two.driver._send_datagram = recording(turns.append, "ack", two.driver._send_datagram)  # type: ignore[method-assign]
        for request in range(20):
            one.post(peer, request=request, offset=0, length=100)
            await one.until(completed, count=request + 1)
        assert "event ack deadlines" in " ".join(turns)


@pytest.mark.sources
async def test_reply__an_application_may_close_at_once_when_a_peer_ends() -> None:
    """The other end gets its CLOSE before that, and need not probe."""
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        two.driver._adaptive_poll_s = PATIENCE_S
        loop = asyncio.get_running_loop()

        def on_event(event: Event) -> None:
            two.on_event(event)
            if ended(event):
                loop.call_soon(two.driver.close)

        two.driver._on_event = on_event
        for request in range(3):
            one.post(peer, request=request, offset=0, length=100)
            await one.until(completed, count=request + 1)
        one.core.close(peer, now=time.monotonic())
        one.driver.wake()
        (event,) = await one.until(ended)
        assert isinstance(event, PeerEnded)
        assert event.reason == "closed"


@pytest.mark.sources
async def test_rx_coalesce__also_in_a_stream_of_short_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ack completes some of them: this is no ping-pong."""
    monkeypatch.setattr(moderation, "BUSY_S", PATIENCE_S)  # on a busy host turns are spaced out anyway
    monkeypatch.setattr(moderation, "MIN_PAUSE_S", 0.0)  # and both ends share a process, whatever the rate
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        one.driver._adaptive_poll_s = PATIENCE_S
        one.driver._poller = recorder = Recorder()  # type: ignore[assignment]
        for request in range(100):
            one.post(peer, request=request, offset=0, length=64 << 10)
        await one.until(completed, count=100)
        assert recorder.calls.count("suppress") > recorder.calls.count("extend")
        assert one.driver._state is not DriverState.YIELDED
