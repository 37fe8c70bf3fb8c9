"""The place where a device's queue pairs wait: when it polls, when it sleeps, and that it misses nothing.

On a fake card, which completes requests and raises events when a test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from devmem import Region
from nitro_emu.aio import Device, QueuePair, Remote, Status, poller
from nitro_emu.aio.address import QpAddress
from nitro_emu.aio.queue_pair import BULK_BYTES
from nitro_emu.verbs import CompletionQueue
from tests.nitro_emu.verbs.fake_card import GID, CardCq, CardQp, FakeCard
from tests.patience import PATIENCE_S, until


@dataclass
class Adaptive:
    """In place of srd.io.adaptive_poll.AdaptivePoller: polls as long as the test wants."""

    active: bool = False
    calls: list[str] = field(default_factory=list)

    def extend(self, _now: float, *, window_s: float) -> None:  # noqa: ARG002 - named as in the original
        self.calls.append("extend")

    def suppress(self, _now: float) -> None:
        self.calls.append("suppress")

    def end(self) -> None:
        self.active = False


@dataclass
class Rig:
    card: FakeCard
    device: Device
    qp: QueuePair
    to: Remote
    adaptive: Adaptive

    @property
    def card_cq(self) -> CardCq:
        return next(iter(self.card.cqs.values()))

    @property
    def card_qp(self) -> CardQp:
        return next(iter(self.card.qps.values()))

    def post(self) -> tuple[asyncio.Future[Status], int]:
        """Send a message; return its future, and the request's id at the card."""
        future = self.qp.send(self.to, b"x")
        (descriptor,) = self.card.take_sends(self.card_qp)
        return future, descriptor.req_id

    def complete(self, req_id: int) -> None:
        self.card.complete_send(self.card_cq, self.card_qp, req_id)

    @property
    def is_armed(self) -> bool:
        return self.card.consumed(self.card_cq).arm

    async def sleeping(self) -> None:
        """Wait until the queue is armed and nothing polls."""
        await until(lambda: self.is_armed and not self.device._poller._is_scheduled)


@asynccontextmanager
async def opened(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    adaptive = Adaptive()
    monkeypatch.setattr(poller, "AdaptivePoller", lambda _loop: adaptive)
    async with asyncio.timeout(PATIENCE_S), await Device.open("efa_0", directory=card.directory) as device:
        qp = await device.queue_pair()
        yield Rig(card, device, qp, await device.remote(QpAddress(GID, 7, 1)), adaptive)


async def test_sleeping__an_event_wakes_it(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(card, monkeypatch) as rig:
        for _ in range(10):  # more often than the number of the request for an event has values
            await rig.sleeping()
            future, req_id = rig.post()
            rig.complete(req_id)
            await asyncio.sleep(0)
            assert not future.done()
            card.fire(rig.card_cq)
            assert await future is Status.OK


async def test_polling__needs_no_event(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(card, monkeypatch) as rig:
        await rig.sleeping()
        future, req_id = rig.post()
        rig.complete(req_id)
        rig.adaptive.active = True
        card.fire(rig.card_cq)
        assert await future is Status.OK
        for _ in range(10):
            future, req_id = rig.post()
            for _ in range(5):
                await asyncio.sleep(0)
            rig.complete(req_id)
            assert await future is Status.OK
            assert not rig.is_armed
        assert rig.adaptive.calls == ["extend"] * 11
        rig.adaptive.active = False
        await rig.sleeping()


async def test_arming__a_completion_that_comes_meanwhile_is_not_missed(
    card: FakeCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card has not seen the request for an event, and raises none."""
    async with opened(card, monkeypatch) as rig:
        await rig.sleeping()
        first, one = rig.post()
        second, other = rig.post()
        arm = CompletionQueue.request_notify
        late = [other]

        def complete_meanwhile(queue: CompletionQueue) -> None:
            arm(queue)
            if late:
                rig.complete(late.pop())

        monkeypatch.setattr(CompletionQueue, "request_notify", complete_meanwhile)
        rig.complete(one)
        card.fire(rig.card_cq)
        assert await first is Status.OK
        assert await second is Status.OK


async def test_bulk__is_not_polled_for(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(card, monkeypatch) as rig:
        with Region(BULK_BYTES) as region:
            memory = await rig.device.register(region)
            await rig.sleeping()
            future = rig.qp.write(rig.to, memory.slice(), rkey=1, remote_address=0)
            (descriptor,) = card.take_sends(rig.card_qp)
            rig.complete(descriptor.req_id)
            card.fire(rig.card_cq)
            assert await future is Status.OK
            assert rig.adaptive.calls[0] == "suppress"


async def test_completions_of_no_request__are_skipped(card: FakeCard, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(card, monkeypatch) as rig:
        await rig.sleeping()
        future, req_id = rig.post()
        for wrong in (req_id ^ 0x8000, 0xFFFF):
            rig.complete(wrong)
        rig.complete(req_id)
        card.fire(rig.card_cq)
        assert await future is Status.OK
        await rig.sleeping()
