"""The receiver process: checks messages, holds them for some time, checks them again, and releases them."""

from __future__ import annotations

import asyncio
import json
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
from scripts.benches.torture.journal import Journal
from scripts.benches.torture.local import GRACE_S, Orders, RunningTime, config, mapped, set_offloads
from scripts.benches.torture.pattern import LANE_BYTES, Bytes, check, fill, identify_owner
from scripts.benches.torture.plans import MIB, EndpointPlan, ReceiverPlan, TortureScenario
from scripts.benches.torture.scenario import LIE
from srd.batch import MessageBatch
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.message import Message
from srd.peer import Peer
from srd.rx_queues import RxQueue

REPLY_BYTES: Final = 40_000
MAX_REPLIES: Final = 8
_TICK_S: Final = 0.02
_IDLE_TICKS: Final = 15


@dataclass(slots=True)
class HeldMessage:
    """A message that is held for some time, to be checked again."""

    release_s: float
    size_bytes: int
    check: Callable[[], None]
    release: Callable[[], None]


class TortureReceiver:
    def __init__(
        self,
        scenario: TortureScenario,
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
        self.rng = Random(f"{scenario.seed}/receiver/{incarnation}")  # noqa: S311 - reproducible, not secret
        self.running = RunningTime(journal.note)
        self.endpoint: Endpoint
        self._directory = directory
        self._orders = orders
        self._attackers = attackers
        self._targets: dict[tuple[int, int], Region] = {}
        """(sender, its incarnation) -> its write target."""
        self._registered: dict[tuple[int, int], list[Registration]] = {}
        self._peers: dict[Peer, int | None] = {}
        """Peer -> number of its connection; None until its first message."""
        self._held: deque[HeldMessage] = deque()
        self._held_bytes = 0
        self._replies = Arena(MAX_REPLIES * 2 * REPLY_BYTES, seed=self.seed)
        self._open_replies: set[asyncio.Future[Any]] = set()
        self._reply_counts: Counter[int] = Counter()
        """Connection -> number of replies sent over it."""
        self._queue: RxQueue | None = None
        self._bound_region: Region | None = None
        self._return_memory: Callable[[Message], None] = Message.release
        self._received = 0  # items received, to detect when no more arrive
        self._serving: list[asyncio.Future[None]] = []

    async def run(self, host: str, *, port: int) -> None:
        self.endpoint = endpoint = await self._listen(host, port=port)
        set_offloads(endpoint, self.plan.endpoint)
        self._return_memory = self._memory_return()
        self._bind()
        source = mapped(self._source(), self._directory, seed=self.seed)
        keys = self._register(source)
        self.note("listening", {"incarnation": self.incarnation, "port": endpoint.address[1], **keys})
        accepting = asyncio.ensure_future(self._accept())
        others = [accepting, asyncio.ensure_future(self._release_held()), *self._timed()]
        if any(LIE in attacker.kinds for attacker in self.scenario.attackers):
            others.append(asyncio.ensure_future(self._be_overheard()))
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
        except SrdError:  # another process has taken the port
            return await Endpoint.listen(host, port=0, config=settings)

    # -- memory -----------------------------------------------------------------------------------------------------

    def _source(self) -> layout.GuardedMemory:
        return layout.source(self.incarnation, size_bytes=layout.SOURCE_BYTES)

    def _target(self, sender: int, incarnation: int) -> layout.GuardedMemory:
        size = layout.target_bytes(self.scenario.senders[sender - 1].giant_bytes)
        return layout.target(sender, incarnation=incarnation, receiver_incarnation=self.incarnation, size_bytes=size)

    def _register(self, source: Region) -> dict[str, Any]:
        """Register memory for every incarnation of every sender; return the keys."""
        endpoint, keys = self.endpoint, dict[str, Any]()
        for sender in range(1, len(self.scenario.senders) + 1):
            for incarnation in range(self.scenario.incarnations(sender)):
                memory = self._target(sender, incarnation)
                region = mapped(memory, self._directory, seed=self.seed)
                both = Access.LOCAL_WRITE | Access.REMOTE_WRITE
                made = [
                    endpoint.register(region, offset=at, length=size, access=both, peers=None)
                    for at, size in memory.ranges
                ]
                self._targets[sender, incarnation], self._registered[sender, incarnation] = region, made
                keys[f"{sender}.{incarnation}"] = [(each.remote_key, each.offset, each.length) for each in made]
        ranges = [
            endpoint.register(source, offset=at, length=size, access=Access.REMOTE_READ, peers=None)
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

    def _memory_return(self) -> Callable[[Message], None]:
        if self.plan.returns == "release":
            return Message.release

        def by_tokens(message: Message) -> None:
            tokens = [frag.token for frag in message.frags()]
            for at in range(0, len(tokens), 100):
                self.endpoint.dontneed([(token, 1) for token in tokens[at : at + 100]])
            message.release()

        return by_tokens

    # -- peers ------------------------------------------------------------------------------------------------------

    async def _accept(self) -> None:
        while True:
            peer = await self.endpoint.accept()
            from_attacker = peer.address[0] in self._attackers
            task = self._drain(peer) if from_attacker else self._serve(peer)
            self._serving.append(asyncio.ensure_future(task))

    async def _be_overheard(self) -> None:
        """Tell attackers what is readable in the honest peers' packets."""
        path = self._directory / layout.OVERHEARD
        while True:
            cores = [peer._core for peer in self._peers if not peer.ended]  # noqa: SLF001 - what is on the wire
            known = [(core.own_context, core.receiver._window.base, 0, 0, core.remote_context) for core in cores]  # noqa: SLF001
            new = path.with_suffix(".new")
            new.write_text(json.dumps(known))
            new.rename(path)
            await asyncio.sleep(_TICK_S)

    async def _drain(self, peer: Peer) -> None:
        """Receive from an attacker; the content is not checked."""
        with suppress(PeerError):
            while True:
                (await peer.recv()).release()
                self._received += 1

    async def _serve(self, peer: Peer) -> None:
        self._peers[peer] = None
        writes: asyncio.Future[None] | None = None
        try:
            while True:
                item = await (peer.recv_batch() if self.rng.random() < 0.5 else peer.recv())
                self._received += 1
                if isinstance(item, MessageBatch):
                    self._on_batch(peer, item)
                else:
                    self._on_message(peer, item)
                if writes is None and self._peers[peer] is not None:
                    writes = asyncio.ensure_future(self._receive_writes(peer))
                    self._steer(peer)
                if self.plan.pause_s and not self._orders.finish.is_set():
                    await asyncio.sleep(self.rng.random() * self.plan.pause_s)
        except PeerError as error:
            self.note("peer_ended", self._peers[peer], int(error.status or 0))
        finally:
            if writes is not None:
                await writes

    def _steer(self, peer: Peer) -> None:
        connection = self._peers[peer]
        if self._queue is not None and connection is not None and layout.sender_of(connection) in self.plan.bound:
            with suppress(PeerError, SrdError):  # the peer may have ended, and the queue may be unbound
                self._queue.steer(peer)

    async def _receive_writes(self, peer: Peer) -> None:
        connection = self._peers[peer] or 0
        with suppress(PeerError):
            while True:
                written = await peer.recv_write()
                self._received += 1
                self.note("received_write", connection, written.immediate, written.length)
                if written.length >= LANE_BYTES:  # shorter writes are checked by the controller at the end
                    self._check_write(connection, self._written(connection, written.immediate, written.length))

    def _check_write(self, connection: int, found: Bytes) -> None:
        """Compare written bytes with the pattern at the notification."""
        sender, number = identify_owner(found, self.seed) or (connection, 0)
        if sender != connection:
            self.note("wrong", f"write {number} of connection {sender} notified connection {connection}")
        if wrong := check(found, self.seed, owner=sender, message=number):
            self.note("wrong", f"write {number} over connection {connection}, {len(found)} bytes: {wrong}")

    def _written(self, connection: int, at: int, length: int) -> Bytes:
        region = self._targets[layout.sender_of(connection), layout.incarnation_of(connection)]
        return np.asarray(region.array)[at : at + length]

    # -- messages ---------------------------------------------------------------------------------------------------

    def _on_message(self, peer: Peer, message: Message) -> None:
        beginning = b"".join(bytes(view[:LANE_BYTES]) for view in message.views())[:LANE_BYTES]
        connection, number = self._identify(peer, np.frombuffer(beginning, np.uint8), message.immediate)
        self.note("received", connection, number, message.length, message.immediate)

        def recheck() -> None:
            self._compare(
                connection, number, (np.frombuffer(view, np.uint8) for view in message.views()), message.length
            )

        recheck()
        self._reply(peer)
        self._hold(message.length, recheck, lambda: self._return_memory(message))

    def _identify(self, peer: Peer, found: Bytes, immediate: int | None) -> tuple[int, int]:
        """Return (connection, message) from the bytes, or, for short messages, from the peer and the immediate."""
        known = self._peers[peer]
        origin = identify_owner(found, self.seed)
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

    def _compare(self, connection: int, number: int, pieces: Iterable[Bytes], length: int) -> None:
        at = 0
        for piece in pieces:
            if wrong := check(piece, self.seed, owner=connection, message=number, offset=at):
                self.note("wrong", f"message {number} of connection {connection}, {length} bytes: {wrong}")
                return
            at += len(piece)
        if at != length:
            self.note("wrong", f"message {number} of connection {connection}: {at} bytes of {length}")

    def _on_batch(self, peer: Peer, batch: MessageBatch) -> None:
        owners = [self._identify(peer, row, batch.immediate) for row in batch.rows()]
        numbers = [number for _, number in owners]
        self.note("received_batch", self._peers[peer], numbers, batch.length, batch.immediate)

        def recheck() -> None:
            for row, (connection, number) in zip(batch.rows(), owners, strict=True):
                self._compare(connection, number, (row,), batch.length)

        recheck()
        self._hold(batch.count * batch.length, recheck, batch.release)

    def _hold(self, size_bytes: int, recheck: Callable[[], None], release: Callable[[], None]) -> None:
        if not self.plan.hold_s or self._orders.finish.is_set() or self.rng.random() < 0.2:
            release()
            return
        until_s = self.running.now_s + self.rng.random() * self.plan.hold_s
        self._held.append(HeldMessage(until_s, size_bytes, recheck, release))
        self._held_bytes += size_bytes

    async def _release_held(self) -> None:
        """Release messages whose time is up, and some of them while `hold_bytes` is exceeded."""
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

    def _reply(self, peer: Peer) -> None:
        connection = self._peers[peer]
        if connection is None or self.rng.random() >= self.plan.replies or len(self._open_replies) >= MAX_REPLIES:
            return
        length = self.rng.choice((0, 8, self.rng.randint(0, REPLY_BYTES)))
        offset = self._replies.allocate(length, rng=self.rng)
        if offset is None:
            return
        self._reply_counts[connection] += 1
        number = self._reply_counts[connection]
        fill(self._replies.bytes(offset, length=length), self.seed, owner=connection | layout.REPLY, message=number)
        self.note("reply", connection, number, length)
        try:
            future = peer.post_send(self._replies.region, offset=offset, length=length, immediate=number)
        except SrdError as error:
            self.note("unposted_reply", connection, number, str(error))
            self._replies.free(offset, length=length)
            return
        self._open_replies.add(future)

        def done(future: asyncio.Future[Any]) -> None:
            self._open_replies.discard(future)
            self.note("reply_end", connection, number, int(future.result()))
            self._replies.free(offset, length=length)

        future.add_done_callback(done)

    # -- timed actions -----------------------------------------------------------------------------------------------

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
        """Deregister the write target of a sender, and copy its content, which must not change any more."""
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
        for peer, connection in list(self._peers.items()):
            if connection is not None and layout.sender_of(connection) == sender and not peer.ended:
                self.note("closing", connection)
                await peer.close()

    async def _unbind(self, queue: RxQueue, at_s: float) -> None:
        await asyncio.sleep(at_s)
        queue.unbind()

    # -- the end ----------------------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        """Continue until nothing more arrives; all senders have ended."""
        idle = 0
        while idle < _IDLE_TICKS:
            received = self._received
            await asyncio.sleep(_TICK_S)
            idle = idle + 1 if received == self._received and not self._held else 0
        self.note("read_all")

    async def _close(self, source: Region) -> None:
        bound_s = self.plan.endpoint.request_timeout_s + GRACE_S
        await self.running.bounded(self.endpoint.close(), bound_s=bound_s, called="the receiver's Endpoint.close")
        serving = asyncio.gather(*self._serving)
        await self.running.bounded(serving, bound_s=bound_s, called="a task that reads a peer of a closed endpoint")
        self._serving.clear()
        self.running.stop()
        self._peers.clear()
        self._registered.clear()
        self._replies.close()
        for region in (source, *self._targets.values(), self._bound_region):
            if region is not None:
                region.close()
        self._targets.clear()
