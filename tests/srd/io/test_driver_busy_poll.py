"""srd.io.driver: spinning instead of sleeping, rest only in a stream, and what messages to and fro are treated to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from srd.io import driver
from srd.io.driver import DriverState
from srd.proto.events import Event, MessageReceived, PeerEnded, PeerOpened
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.io.node import Node, completed, ended, fill, node, open_pair, opened, received
from tests.srd.loopback import SMALL, content, memory, pair, receive, send

SEED = 13
SPINNING = replace(SMALL, busy_poll=True)


async def test_busy_poll__messages_to_and_fro_and_an_orderly_end() -> None:
    payload = content(2 << 20, seed=SEED)
    async with pair(config=SPINNING) as (one, _, here, there):
        for _ in range(20):
            assert await send(here, b"ping") is Status.OK
            assert await receive(there) == b"ping"
        with memory(payload) as region:
            sending = here.send(region, offset=0, length=len(payload))
            assert await receive(there) == payload
            assert await sending is Status.OK
        assert one._engine._driver._coalesce_until is None
        await here.close()


async def test_busy_poll__leaves_other_tasks_their_turn() -> None:
    async with asyncio.timeout(PATIENCE_S), pair(config=SPINNING):
        await asyncio.sleep(0.01)  # its timer comes at all: what spins gives the loop its turn


async def test_busy_poll__spins_without_end_and_stops_at_the_close() -> None:
    async with pair(config=SPINNING) as (one, _, _, _):
        turns = 0
        poll = one._engine._driver._epoll.poll

        class Counting:
            def poll(self, timeout: float) -> list[tuple[int, int]]:
                nonlocal turns
                turns += 1
                return poll(timeout)

            def __getattr__(self, name: str) -> object:
                return getattr(one_epoll, name)

        one_epoll = one._engine._driver._epoll
        one._engine._driver._epoll = Counting()  # type: ignore[assignment]  # what is used of it
        async with asyncio.timeout(PATIENCE_S):  # nothing else happens that would have it look
            while turns <= 100 * driver.SPINS / 16:  # noqa: ASYNC110 - the driver has no event for it
                await asyncio.sleep(0)
        one._engine._driver._epoll = one_epoll


@pytest.mark.sources
@pytest.mark.parametrize(("answering", "read"), [(False, True), (True, False)])
async def test_busy_poll__who_has_more_to_send_reads_no_less_but_before_an_answer(answering: bool, read: bool) -> None:  # noqa: FBT001 - a case
    async with pair(config=SPINNING) as (one, _, _, _):
        turns: list[bool] = []

        class Ready:
            def poll(self, _timeout: float) -> list[tuple[int, int]]:
                return [(0, 0)]

        spinning, epoll = one._engine._driver, one._engine._driver._epoll
        spinning._epoll = Ready()  # type: ignore[assignment]  # what is used of it
        spinning._turn = lambda *, read: turns.append(read)  # type: ignore[method-assign]
        spinning._wake_due = True
        spinning._state = DriverState.YIELDED if answering else DriverState.WAITING
        spinning._spin()
        assert turns == [read]
        assert not spinning._wake_due
        spinning._epoll, spinning._state = epoll, DriverState.WAITING
        del spinning._turn


@pytest.mark.sources
async def test_rest__only_in_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "BUSY_S", PATIENCE_S)  # a busy host spaces turns out by itself
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        for request in range(20):
            one.post(peer, request=request, offset=0, length=(100, 64 << 10)[request % 2])
            await one.until(completed, count=request + 1)
            assert one.driver._coalesce_until is two.driver._coalesce_until is None
        rested = {one.driver: False, two.driver: False}
        enter = driver.Driver._enter

        def noting(self: driver.Driver, state: DriverState) -> None:
            enter(self, state)
            rested[self] |= state is DriverState.COALESCING

        monkeypatch.setattr(driver.Driver, "_enter", noting)
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
    """In place of an adaptive poller."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.calls.append(name)


@pytest.mark.sources
async def test_adaptive_poller__kept_between_messages_that_follow_closely_and_not_beside_streams() -> None:
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


def noting(note: Callable[[str], None], what: str, do: Callable[..., Any]) -> Callable[..., Any]:
    """Return `do`, wrapped so that it notes each call."""

    def noted(*args: Any) -> Any:
        note(what)
        return do(*args)

    return noted


@pytest.mark.sources
@pytest.mark.parametrize("length", [100, driver.BULK_BYTES])
async def test_answer__goes_first_where_small_messages_go_to_and_fro(length: int) -> None:
    """Then the ack of what it answers; and then an ack is calls that came with that."""
    async with node(accepting=True, paths=1) as two, node(accepting=False, paths=1) as one:
        peers = {one: await open_pair(one, two)}
        (opening,) = await two.until(opened)
        assert isinstance(opening, PeerOpened)
        peers[two] = opening.peer
        rounds: list[list[str]] = []  # what `two` did after each message

        def answering(node: Node) -> None:
            """Have a node answer each message it receives with one like it."""

            def on_event(event: Event) -> None:
                node.on_event(event)
                if isinstance(event, MessageReceived):
                    if node is two:
                        rounds.append([])
                    number = sum(map(received, node.events))
                    loop.call_soon(lambda: node.post(peers[node], request=number, offset=0, length=length))

            node.driver._on_event = on_event

        def note(what: str) -> None:
            if rounds:
                rounds[-1].append(what)

        def handle(*args: Any, **named: Any) -> Any:
            if named["controls"]:
                note("calls")
            return handle_packets(*args, **named)

        handle_packets = two.core.handle_packets
        loop = asyncio.get_running_loop()
        for each in (one, two):
            fill(each, 4 << 20)
            each.driver._adaptive_poll_s = PATIENCE_S
            answering(each)
        two.driver._transmitter.flush = noting(note, "answer", two.driver._transmitter.flush)  # type: ignore[method-assign]
        two.driver._send_datagram = noting(note, "ack", two.driver._send_datagram)  # type: ignore[method-assign]
        two.core.handle_packets = handle  # type: ignore[method-assign]
        one.post(peers[one], request=0, offset=0, length=length)
        await two.until(received, count=10)
        small = length < driver.BULK_BYTES
        noted = [words for words in rounds if words]
        assert (["answer", "ack", "calls"] in noted) is small
        if not small:  # something else may be calls or acknowledged before, as a probe of a path
            assert all("ack" in words[: words.index("answer")] for words in noted if "answer" in words)


@pytest.mark.sources
async def test_answer__an_application_that_has_none_delays_no_ack() -> None:
    """It goes a turn of the loop later: its sender has not begun to ask what has become of the message."""
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        two.driver._adaptive_poll_s = PATIENCE_S
        turns: list[str] = []

        two.driver._read = noting(turns.append, "read", two.driver._read)  # type: ignore[method-assign]
        two.driver._send_datagram = noting(turns.append, "ack", two.driver._send_datagram)  # type: ignore[method-assign]
        for request in range(20):
            one.post(peer, request=request, offset=0, length=100)
            await one.until(completed, count=request + 1)
        assert turns.count("ack") >= 20
        assert "read read read" not in " ".join(turns), "a message, and what asks after it"


@pytest.mark.sources
async def test_answer__deadlines_are_checked_where_every_turn_that_reads_brings_a_message() -> None:
    """A server of many would else never see that an answer of its own was lost."""
    async with node(accepting=True) as two, node(accepting=False) as one:
        peer = await open_pair(one, two)
        fill(one, 4 << 20)
        two.driver._adaptive_poll_s = PATIENCE_S
        turns: list[str] = []
        two.core.handle_timeout = noting(turns.append, "deadlines", two.core.handle_timeout)  # type: ignore[method-assign]
        two.driver._on_event = noting(turns.append, "event", two.on_event)
        two.driver._send_datagram = noting(turns.append, "ack", two.driver._send_datagram)  # type: ignore[method-assign]
        for request in range(20):
            one.post(peer, request=request, offset=0, length=100)
            await one.until(completed, count=request + 1)
        assert "event ack deadlines" in " ".join(turns)


@pytest.mark.sources
async def test_answer__an_application_may_close_at_once_when_a_peer_ends() -> None:
    """The other end gets its CLOSE before, and need not probe."""
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
async def test_rest__in_a_stream_of_short_messages_too() -> None:
    """Each ack completes some of them: that is no message to and fro."""
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
