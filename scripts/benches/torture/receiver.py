"""The receiving process: checks messages, holds them for some time, checks them again, and releases them."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

from devmem.region import Region
from devmem.registry import Access, Registration
from scripts.benches.torture import layout
from scripts.benches.torture.arena import Arena
from scripts.benches.torture.connection import GRACE_S
from scripts.benches.torture.journal import Journal
from scripts.benches.torture.local import Orders, RunningTime, config, mapped, set_offloads
from scripts.benches.torture.pattern import LANE_BYTES, Bytes, check, fill, owner
from scripts.benches.torture.plans import MIB, EndpointPlan, ReceiverPlan, Scenario
from srd.batch import MessageBatch
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.message import Message
from srd.peer import Peer
from srd.rx_queue import RxQueue

REPLY_BYTES: Final = 40_000
MAX_REPLIES: Final = 8
_TICK_S: Final = 0.02
_IDLE_TICKS: Final = 15


@dataclass(slots=True)
class Held:
    """A message that is kept for a while, to be checked again."""

    release_s: float
    size_bytes: int
    check: Callable[[], None]
    release: Callable[[], None]


class Receiver:
    """One incarnation of the receiving process."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        incarnation: int,
        directory: Path,
        journal: Journal,
        orders: Orders,
        attackers: list[str],
    ) -> None:
        self.seed = scenario.seed
        self.scenario = scenario
        self.plan: ReceiverPlan = scenario.receiver
        self.incarnation = incarnation
        self.note = journal.note
        self.rng = Random(f"{scenario.seed}/receiver/{incarnation}")  # noqa: S311 - to be drawn again alike
        self.running = RunningTime()
        self.endpoint: Endpoint
        self._directory = directory
        self._orders = orders
        self._attackers = attackers
        self._targets: dict[tuple[int, int], Region] = {}
        """(sender, its incarnation) -> what it may write to."""
        self._registered: dict[tuple[int, int], list[Registration]] = {}
        self._peers: dict[Peer, int | None] = {}
        """Peer -> number of the connection, as soon as it is known."""
        self._held: deque[Held] = deque()
        self._held_bytes = 0
        self._replies = Arena(MAX_REPLIES * 2 * REPLY_BYTES, seed=self.seed)
        self._open_replies: set[asyncio.Future[Any]] = set()
        self._answers: Counter[int] = Counter()
        """Connection -> replies that were sent over it."""
        self._queue: RxQueue | None = None
        self._bound_region: Region | None = None
        self._give_back: Callable[[Message], None] = Message.release
        self._turns = 0  # messages taken, to see when there are no more
        self._serving: list[asyncio.Future[None]] = []

    async def run(self, host: str, *, port: int) -> None:
        """All of it: ends when everything is closed."""
        self.endpoint = endpoint = await self._listen(host, port=port)
        set_offloads(endpoint, self.plan.endpoint)
        self._give_back = self._returning()
        self._bind()
        source = mapped(self._source(), self._directory, seed=self.seed)
        keys = self._register(source)
        self.note("listening", {"incarnation": self.incarnation, "port": endpoint.address[1], **keys})
        accepting = asyncio.ensure_future(self._accept())
        others = [accepting, asyncio.ensure_future(self._let_go()), *self._timed()]
        await self._orders.finish.wait()
        await self._read_all()
        for task in others:
            task.cancel()
        await asyncio.wait(others)
        for task in others:
            if not task.cancelled():
                task.result()
        await self._close(source)

    async def _listen(self, host: str, *, port: int) -> Endpoint:
        settings = config(self.plan.endpoint)
        try:
            return await Endpoint.listen(host, port=port, config=settings)
        except SrdError:  # another process has the port by now
            return await Endpoint.listen(host, port=0, config=settings)

    # -- memory -----------------------------------------------------------------------------------------------------

    def _source(self) -> layout.Memory:
        return layout.source(self.incarnation, size_bytes=layout.SOURCE_BYTES)

    def _target(self, sender: int, incarnation: int) -> layout.Memory:
        size = layout.target_bytes(self.scenario.senders[sender - 1].giant_bytes)
        return layout.target(sender, incarnation=incarnation, receiver_incarnation=self.incarnation, size_bytes=size)

    def _register(self, source: Region) -> dict[str, Any]:
        """Register memory for every incarnation that there will be of a sender; return the keys."""
        endpoint, keys = self.endpoint, dict[str, Any]()
        for sender in range(1, len(self.scenario.senders) + 1):
            for incarnation in range(self.scenario.incarnations(sender)):
                memory = self._target(sender, incarnation)
                region = mapped(memory, self._directory, seed=self.seed)
                both = Access.LOCAL_WRITE | Access.REMOTE_WRITE
                made = [endpoint.register(region, offset=at, length=size, access=both) for at, size in memory.ranges]
                self._targets[sender, incarnation], self._registered[sender, incarnation] = region, made
                keys[f"{sender}.{incarnation}"] = [(each.remote_key, each.offset, each.length) for each in made]
        ranges = [
            endpoint.register(source, offset=at, length=size, access=Access.REMOTE_READ)
            for at, size in self._source().ranges
        ]
        return {"keys": keys, "source": [(each.remote_key, each.offset, each.length) for each in ranges]}

    def _bind(self) -> None:
        if not self.plan.bound:
            return
        plan: EndpointPlan = self.plan.endpoint
        least = 17 * plan.chunk_bytes + MIB + plan.max_message_bytes
        self._bound_region = Region(least + self.rng.choice((0, 4, 16)) * MIB, name="torture-bound")
        self._queue = self.endpoint.bind_rx(self._bound_region, chunk_bytes=plan.chunk_bytes)

    def _returning(self) -> Callable[[Message], None]:
        """Return how messages are given back."""
        if self.plan.returns == "release":
            return Message.release
        if self.plan.returns == "tokens":

            def by_tokens(message: Message) -> None:
                tokens = [frag.token for frag in message.frags()]
                for at in range(0, len(tokens), 100):
                    self.endpoint.dontneed([(token, 1) for token in tokens[at : at + 100]])
                message.release()

            return by_tokens
        ring = self.endpoint.refill_ring()

        def by_ring(message: Message) -> None:
            for frag in message.frags():
                if not ring.push(frag):
                    self.endpoint.dontneed([(frag.token, 1)])

        return by_ring

    # -- peers ------------------------------------------------------------------------------------------------------

    async def _accept(self) -> None:
        while True:
            peer = await self.endpoint.accept()
            strange = peer.address[0] in self._attackers
            task = self._drain(peer) if strange else self._serve(peer)
            self._serving.append(asyncio.ensure_future(task))

    async def _drain(self, peer: Peer) -> None:
        """Receive from an attacker; the content is not checked."""
        with suppress(PeerError):
            while True:
                (await peer.recv()).release()
                self._turns += 1

    async def _serve(self, peer: Peer) -> None:
        self._peers[peer] = None
        writes: asyncio.Future[None] | None = None
        try:
            while True:
                item = await (peer.recv_batch() if self.rng.random() < 0.5 else peer.recv())
                self._turns += 1
                if isinstance(item, MessageBatch):
                    self._take_batch(peer, item)
                else:
                    self._take(peer, item)
                if writes is None and self._peers[peer] is not None:
                    writes = asyncio.ensure_future(self._take_writes(peer))
                    self._steer(peer)
                if self.plan.pause_s and not self._orders.finish.is_set():
                    await asyncio.sleep(self.rng.random() * self.plan.pause_s)
        except PeerError as error:
            self.note("end_of_peer", self._peers[peer], int(error.status or 0))
        finally:
            if writes is not None:
                await writes

    def _steer(self, peer: Peer) -> None:
        who = self._peers[peer]
        if self._queue is not None and who is not None and layout.sender_of(who) in self.plan.bound:
            with suppress(PeerError, SrdError):  # it may be gone, and the queue unbound
                self._queue.steer(peer)

    async def _take_writes(self, peer: Peer) -> None:
        who = self._peers[peer] or 0
        with suppress(PeerError):
            while True:
                written = await peer.recv_write()
                self._turns += 1
                self.note("got_write", who, written.immediate, written.length)
                if written.length >= LANE_BYTES:  # of less the controller sees, when all is over
                    self._check_write(who, self._written(who, written.immediate, written.length))

    def _check_write(self, who: int, found: Bytes) -> None:
        """Compare written bytes with the pattern when the notification arrives."""
        sender, number = owner(found, self.seed) or (who, 0)
        if sender != who:
            self.note("wrong", f"write {number} of connection {sender} was notified over connection {who}")
        if wrong := check(found, self.seed, who=sender, message=number):
            self.note("wrong", f"write {number} over connection {who}, {len(found)} bytes: {wrong}")

    def _written(self, who: int, at: int, length: int) -> Bytes:
        region = self._targets[layout.sender_of(who), layout.incarnation_of(who)]
        return np.asarray(region.array)[at : at + length]

    # -- messages ---------------------------------------------------------------------------------------------------

    def _take(self, peer: Peer, message: Message) -> None:
        beginning = b"".join(bytes(view[:LANE_BYTES]) for view in message.views())[:LANE_BYTES]
        who, number = self._identify(peer, np.frombuffer(beginning, np.uint8), message.immediate)
        self.note("got", who, number, message.length, message.immediate)

        def recheck() -> None:
            self._compare(who, number, (np.frombuffer(view, np.uint8) for view in message.views()), message.length)

        recheck()
        self._answer(peer)
        self._keep(message.length, recheck, lambda: self._give_back(message))

    def _identify(self, peer: Peer, found: Bytes, immediate: int | None) -> tuple[int, int]:
        """Return which message this is: by its bytes, or, if it is short, by its immediate and its peer."""
        known = self._peers[peer]
        origin = owner(found, self.seed)
        if origin is None:
            if known is None and len(found) >= LANE_BYTES:
                self.note(
                    "wrong",
                    f"a first message of {len(found)} bytes belongs to no connection: {found[:16].tobytes().hex()}",
                )
            return known or 0, immediate or 0
        if known is None:
            self._peers[peer] = origin[0]
        elif origin[0] != known:
            self.note("wrong", f"message {origin[1]} of connection {origin[0]} came over connection {known}")
        return origin

    def _compare(self, who: int, number: int, pieces: Iterable[Bytes], length: int) -> None:
        at = 0
        for piece in pieces:
            if wrong := check(piece, self.seed, who=who, message=number, offset=at):
                self.note("wrong", f"message {number} of connection {who}, {length} bytes: {wrong}")
                return
            at += len(piece)
        if at != length:
            self.note("wrong", f"message {number} of connection {who}: {at} bytes of {length}")

    def _take_batch(self, peer: Peer, batch: MessageBatch) -> None:
        owners = [self._identify(peer, row, batch.immediate) for row in batch.rows()]
        numbers = [number for _, number in owners]
        self.note("got_batch", self._peers[peer], numbers, batch.length, batch.immediate)

        def recheck() -> None:
            for row, (who, number) in zip(batch.rows(), owners, strict=True):
                self._compare(who, number, (row,), batch.length)

        recheck()
        self._keep(batch.count * batch.length, recheck, batch.release)

    def _keep(self, size_bytes: int, recheck: Callable[[], None], release: Callable[[], None]) -> None:
        if not self.plan.hold_s or self._orders.finish.is_set() or self.rng.random() < 0.2:
            release()
            return
        until_s = self.running.now_s + self.rng.random() * self.plan.hold_s
        self._held.append(Held(until_s, size_bytes, recheck, release))
        self._held_bytes += size_bytes

    async def _let_go(self) -> None:
        """Release what was held long enough, or is too much; in no particular order."""
        while True:
            await asyncio.sleep(_TICK_S)
            done = self._orders.finish.is_set()
            for _ in range(len(self._held)):
                held = self._held.popleft()
                over = self._held_bytes > self.plan.hold_bytes and self.rng.random() < 0.5
                if done or over or held.release_s <= self.running.now_s:
                    held.check()
                    held.release()
                    self._held_bytes -= held.size_bytes
                else:
                    self._held.append(held)

    def _answer(self, peer: Peer) -> None:
        """Send something back, sometimes."""
        who = self._peers[peer]
        if who is None or self.rng.random() >= self.plan.replies or len(self._open_replies) >= MAX_REPLIES:
            return
        length = self.rng.choice((0, 8, self.rng.randint(0, REPLY_BYTES)))
        offset = self._replies.take(length, rng=self.rng)
        if offset is None:
            return
        self._answers[who] += 1
        number = self._answers[who]
        fill(self._replies.bytes(offset, length=length), self.seed, who=who | layout.REPLY, message=number)
        self.note("answer", who, number, length)
        try:
            future = peer.send(self._replies.region, offset=offset, length=length, immediate=number)
        except SrdError as error:
            self.note("unanswered", who, number, str(error))
            self._replies.give_back(offset, length=length)
            return
        self._open_replies.add(future)

        def done(future: asyncio.Future[Any]) -> None:
            self._open_replies.discard(future)
            self.note("answer_end", who, number, int(future.result()))
            self._replies.give_back(offset, length=length)

        future.add_done_callback(done)

    # -- what it does by itself -------------------------------------------------------------------------------------

    def _timed(self) -> list[asyncio.Future[None]]:
        timed: list[asyncio.Future[None]] = []
        for sender, at_s in self.plan.withdraw_at_s.items():
            timed.append(asyncio.ensure_future(self._withdraw(sender, at_s)))
        for sender, at_s in self.plan.close_at_s.items():
            timed.append(asyncio.ensure_future(self._close_peer(sender, at_s)))
        if self._queue is not None and self.plan.unbind_at_s is not None:
            timed.append(asyncio.ensure_future(self._unbind(self._queue, self.plan.unbind_at_s)))
        return timed

    async def _withdraw(self, sender: int, at_s: float) -> None:
        """Deregister what a sender writes to, and note what is there: it must not change any more."""
        await asyncio.sleep(at_s)
        for incarnation in range(self.scenario.incarnations(sender)):
            name = self._target(sender, incarnation).name
            self.note("withdrawing", name)
            for registration in self._registered.pop((sender, incarnation)):
                self.endpoint.deregister(registration)
            shutil.copyfile(self._directory / name, self._directory / f"{name}.withdrawn")
            self.note("withdrawn", name)

    async def _close_peer(self, sender: int, at_s: float) -> None:
        await asyncio.sleep(at_s)
        for peer, who in list(self._peers.items()):
            if who is not None and layout.sender_of(who) == sender and not peer.ended:
                self.note("closing", who)
                await peer.close()

    async def _unbind(self, queue: RxQueue, at_s: float) -> None:
        await asyncio.sleep(at_s)
        queue.unbind()

    # -- the end ----------------------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        """Go on until nothing comes any more; all senders are gone."""
        idle = 0
        while idle < _IDLE_TICKS:
            turns = self._turns
            await asyncio.sleep(_TICK_S)
            idle = idle + 1 if turns == self._turns and not self._held else 0
        self.note("read_all")

    async def _close(self, source: Region) -> None:
        bound_s = self.plan.endpoint.request_timeout_s + GRACE_S
        closing = asyncio.ensure_future(self.endpoint.close())
        if not await self.running.bounded(closing, bound_s=bound_s):
            self.note("hang", f"the receiver's Endpoint.close did not return within {bound_s:g} s")
        else:
            closing.result()
        serving = asyncio.gather(*self._serving)
        if not await self.running.bounded(serving, bound_s=bound_s):
            self.note("hang", "a task that reads a peer did not end with its endpoint")
            serving.cancel()
            await asyncio.wait([serving])
        else:
            serving.result()
        self._serving.clear()
        self.running.stop()
        self._peers.clear()
        self._registered.clear()
        self._replies.close()
        for region in (source, *self._targets.values(), self._bound_region):
            if region is not None:
                region.close()
        self._targets.clear()
