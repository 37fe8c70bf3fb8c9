"""One connection of a sender: its requests, their completions, and the replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from devmem.errors import RegionError
from devmem.region import Region
from scripts.benches.torture import layout
from scripts.benches.torture.lengths import length as draw_length
from scripts.benches.torture.local import GRACE_S
from scripts.benches.torture.pattern import LANE_BYTES, POISON, SOURCE, check, fill
from scripts.benches.torture.plans import RequestKind
from srd.errors import PeerError, SrdError
from srd.peer import Peer
from srd.proto.wire.status import Status

if TYPE_CHECKING:
    from scripts.benches.torture.sender import TortureSender
    from srd.endpoint import Endpoint

CANCELLED: Final = -1
"""Recorded instead of a status: the future was cancelled."""
INTRODUCTION_BYTES: Final = 64
GIANT_MESSAGE: Final = 1
"""Number of the message of 1 GiB."""
NO_FLAW, KEY_FLAW, RANGE_FLAW = range(3)
"""Flaws for which a write or a read must be refused: unknown key, or a range one byte beyond the registration."""
MAX_BATCH: Final = 200
LENT_BYTES: Final = 4 << 20
_CANCEL_WITHIN_S: Final = 0.02
_POLL_S: Final = 0.05


@dataclass(slots=True)
class OpenRequest:
    number: int
    posted_s: float
    """Running time of this process at the posting."""
    finish: Callable[[int], None]
    """Called with the status; releases the memory."""
    left: int = 1
    """Messages of a batch that have not completed."""
    future: asyncio.Future[Status] | None = None


class TorturePeer:
    """One peer: `run` posts requests until it ends."""

    def __init__(self, sender: TortureSender, endpoint: Endpoint, peer: Peer, *, number: int) -> None:
        self.number = number
        self._sender = sender
        self._plan = sender.plan
        self._endpoint = endpoint
        self._peer = peer
        self._rng = sender.rng
        self._note = sender.journal.note
        self._receiver = sender.orders.latest
        self._next = 0
        self._open: dict[int, OpenRequest] = {}
        self._batches: list[tuple[range, OpenRequest]] = []
        self._changed = asyncio.Event()
        self._identified = False  # whether the first message was delivered
        self._used = sender.write_used.setdefault(self._receiver["incarnation"], [0, 0])

    # -- lifecycle --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Post until the time is up or the peer has ended; then end it."""
        running, plan = self._sender.running, self._plan
        until_s = self._sender.until_s
        if plan.reconnect_after_s is not None:
            until_s = min(until_s, running.now_s + plan.reconnect_after_s)
        self._note("connected", self.number, self._receiver["incarnation"], self._peer.batch_bytes + 56)
        replies = asyncio.ensure_future(self._receive_replies())
        await self._introduce()
        first = layout.connection(self._sender.worker, incarnation=self._sender.incarnation, number=0)
        at_giant = self._identified and self._next == GIANT_MESSAGE and self.number == first
        if self._sender.giant is not None and at_giant:
            self._post_giant(self._sender.giant)
        finish = self._sender.orders.finish
        while self._identified and running.now_s < until_s and not self._peer.ended and not finish.is_set():
            posted = len(self._open) < plan.outstanding and self._post(self._drawn_kind(), most=plan.longest_bytes)
            if not posted:
                await self._wait_for_requests(most=plan.outstanding - 1)
            else:
                await asyncio.sleep(self._rng.random() * plan.pause_s)
        await self._end(replies)

    async def _introduce(self) -> None:
        """Send a first message, from which the receiver identifies the connection."""
        try:
            self._post_send(INTRODUCTION_BYTES, cancelled=0.0)
        except SrdError:  # the peer has ended
            return
        while self._open:
            await self._wait_for_requests(most=0)

    async def _wait_for_requests(self, *, most: int) -> None:
        """Wait until at most `most` requests are open, at least briefly; overdue requests end the wait."""
        self._changed.clear()
        if len(self._open) <= most:
            await asyncio.sleep(_POLL_S)
        while len(self._open) > most and not self._overdue():
            try:
                await asyncio.wait_for(self._changed.wait(), _POLL_S)
            except TimeoutError:
                continue
            self._changed.clear()

    def _overdue(self) -> bool:
        """Report requests that exceed their timeout as hangs, and drop them; return whether there are any."""
        bound_s = self._plan.endpoint.request_timeout_s + GRACE_S
        late = [each for each in self._open.values() if self._sender.running.now_s > each.posted_s + bound_s]
        for request in late:
            self._note("hang", f"connection {self.number}: request {request.number} is open after {bound_s:g} s")
            del self._open[request.number]
        return bool(late)

    async def _end(self, replies: asyncio.Future[None]) -> None:
        if self._plan.drains:
            while self._open:
                await self._wait_for_requests(most=0)
        bound_s = self._plan.endpoint.request_timeout_s + GRACE_S
        called = f"connection {self.number}: Peer.close"
        await self._sender.running.bounded(self._peer.close(), bound_s=bound_s, called=called)
        await asyncio.sleep(_POLL_S)  # lets scheduled callbacks run
        for number in self._open:
            self._note("hang", f"connection {self.number}: request {number} is open after its peer was closed")
        self._note("closed", self.number, int(self._peer.error().status or 0))
        replies.cancel()
        await asyncio.wait([replies])
        if not replies.cancelled():
            replies.result()

    async def _receive_replies(self) -> None:
        try:
            while True:
                with await self._peer.recv() as message:
                    found = np.frombuffer(message.gather(), np.uint8)
                    number = message.immediate
                    wrong = check(found, self._sender.seed, owner=self.number | layout.REPLY, message=number or 0)
                    self._note("received_reply", self.number, number, len(found))
                    if wrong:
                        self._note(
                            "wrong", f"reply {number} over connection {self.number}, {len(found)} bytes: {wrong}"
                        )
        except PeerError:
            return

    # -- posting ----------------------------------------------------------------------------------------------------

    def _drawn_kind(self) -> RequestKind:
        weights = self._plan.weights
        return self._rng.choices(list(weights), list(weights.values()))[0]

    def _post(self, kind: RequestKind, *, most: int) -> bool:
        """Post a request of this kind; return whether it was posted."""
        length = draw_length(
            self._rng,
            segment_bytes=self._peer.batch_bytes or 512,
            chunk_bytes=self._plan.endpoint.chunk_bytes,
            longest=most,
            small=self._plan.small,
        )
        posts: dict[RequestKind, Callable[[int], bool]] = {
            RequestKind.SEND: self._post_send,
            RequestKind.BATCH: self._post_batch,
            RequestKind.WRITE: self._post_write,
            RequestKind.READ: self._post_read,
            RequestKind.LENT: self._post_lent,
        }
        first = self._next
        try:
            return posts[kind](length)
        except SrdError as error:
            self._note("unposted", self.number, first, self._next - first, str(error))
            return False

    def _number(self, count: int = 1) -> int:
        first, self._next = self._next, self._next + count
        return first

    def _track(
        self,
        number: int,
        post: Callable[[], asyncio.Future[Status]],
        finish: Callable[[int], None],
        *,
        cancelled: float = 0.0,
    ) -> None:
        """Post a request that was noted; `finish` is called also when that fails. Raises SrdError."""
        try:
            future = post()
        except SrdError:
            finish(CANCELLED)
            raise
        request = OpenRequest(number, self._sender.running.now_s, finish, future=future)
        self._open[number] = request
        future.add_done_callback(partial(self._ended, request))
        if self._rng.random() < cancelled:
            asyncio.get_running_loop().call_later(self._rng.random() * _CANCEL_WITHIN_S, partial(self._cancel, request))

    def _cancel(self, request: OpenRequest) -> None:
        if request.future is not None and not request.future.done():
            self._note("cancel", self.number, request.number)
            request.future.cancel()

    def _ended(self, request: OpenRequest, future: asyncio.Future[Status]) -> None:
        status = CANCELLED if future.cancelled() else int(future.result())
        self._note("end", self.number, request.number, 1, status)
        self._identified = self._identified or status == Status.OK
        request.finish(status)
        self._open.pop(request.number, None)
        self._changed.set()

    def _immediate(self, number: int, *, length: int) -> int | None:
        """Return the number of the message, or sometimes None if its bytes carry it."""
        return None if length >= LANE_BYTES and self._rng.random() < 0.5 else number

    def _post_send(self, length: int, *, cancelled: float | None = None) -> bool:
        arena, number = self._sender.arena, self._next
        offset = arena.allocate(length, rng=self._rng)
        if offset is None:
            return False
        fill(arena.bytes(offset, length=length), self._sender.seed, owner=self.number, message=number)
        immediate = self._immediate(number, length=length)
        self._note("send", self.number, self._number(), length, immediate)
        self._track(
            number,
            lambda: self._peer.post_send(arena.region, offset=offset, length=length, immediate=immediate),
            lambda _status: arena.free(offset, length=length),
            cancelled=self._plan.cancelled if cancelled is None else cancelled,
        )
        return True

    def _post_lent(self, _length: int) -> bool:
        """Send from a region and close it at once: if that succeeds, memory that is mapped next must not be sent."""
        number, length = self._next, min(LENT_BYTES, self._plan.longest_bytes)
        region = Region(LENT_BYTES, name="torture-lent")
        fill(np.asarray(region.array)[:length], self._sender.seed, owner=self.number, message=number)
        self._note("send", self.number, self._number(), length, number)
        mapped = [region]
        post = partial(self._peer.post_send, region, offset=0, length=length, immediate=number)
        self._track(number, post, lambda _status: mapped[0].close())
        with suppress(RegionError):
            region.close()
            mapped[0] = Region(LENT_BYTES, name="torture-other")
            fill(np.asarray(mapped[0].array), self._sender.seed, owner=POISON, message=number)
        return True

    def _post_batch(self, _length: int) -> bool:
        """Post many messages of a packet at most, in groups of one length."""
        rng, arena, longest = self._rng, self._sender.arena, self._peer.batch_bytes
        lengths: list[int] = []
        for _ in range(rng.randint(1, 3)):
            size = rng.choice((0, 1, 8, 64, rng.randint(0, longest), longest, max(longest - 1, 0)))
            lengths += [size] * rng.choice((1, 2, 7, rng.randint(1, MAX_BATCH)))
        gap = rng.choice((0, 0, 5))
        room = sum(lengths) + gap * len(lengths)
        offset = arena.allocate(room, rng=rng)
        if offset is None:
            return False
        first = self._next
        offsets = offset + np.concatenate(([0], np.cumsum(np.array(lengths) + gap)[:-1]))
        for index, (at, size) in enumerate(zip(offsets.tolist(), lengths, strict=True)):
            message = first + index if size >= LANE_BYTES else first
            fill(arena.bytes(at, length=size), self._sender.seed, owner=self.number, message=message)
        immediate = first if min(lengths) < LANE_BYTES or rng.random() < 0.3 else None
        self._note("batch", self.number, self._number(len(lengths)), lengths, immediate)
        free = partial(arena.free, offset, length=room)
        try:
            ids = self._peer.post_sends(arena.region, offsets, lengths=np.array(lengths), immediate=immediate)
        except SrdError:
            free()
            raise
        request = OpenRequest(first, self._sender.running.now_s, lambda _status: free(), left=len(lengths))
        self._open[first] = request
        self._batches.append((ids, request))
        return True

    def batch_ended(self, first: int, *, count: int, status: int) -> None:
        """Handle an entry of the completion queue, which may cover several batches."""
        while count:
            ids, request = next(each for each in self._batches if first in each[0])
            covered = min(count, ids.stop - first)
            self._note("end", self.number, request.number + first - ids.start, covered, status)
            request.left -= covered
            if not request.left:
                request.finish(status)
                self._open.pop(request.number, None)
                self._batches.remove((ids, request))
                self._changed.set()
            first, count = first + covered, count - covered

    # -- remote memory -----------------------------------------------------------------------------------------------

    def _post_write(self, length: int) -> bool:
        """Write to a range of the receiver's memory that no other write uses."""
        key_of = self._receiver["keys"][f"{self._sender.worker}.{self._sender.incarnation}"]
        which = self._rng.randrange(2)
        key, at, size = key_of[which]
        start = self._used[which] + self._rng.randrange(64)
        flaw = self._rng.choice((KEY_FLAW, RANGE_FLAW)) if self._rng.random() < self._plan.flawed else NO_FLAW
        length = min(length, layout.FLAWED_BYTES if flaw == RANGE_FLAW else size - layout.FLAWED_BYTES - start)
        if length < 0:
            return self._post_send(min(64, self._plan.longest_bytes))
        arena = self._sender.arena
        offset = arena.allocate(length, rng=self._rng)
        if offset is None:
            return False
        number = self._number()
        fill(arena.bytes(offset, length=length), self._sender.seed, owner=self.number, message=number)
        if flaw == KEY_FLAW:
            key ^= 1
        elif flaw == RANGE_FLAW:
            start = size - length + 1  # the packets that lie within may be placed
        else:
            self._used[which] = start + max(length, 1)  # the offset identifies the write
        immediate = at + start if self._rng.random() < 0.4 and not flaw else None
        self._note("write", self.number, number, length, self._target().name, at + start, immediate, flaw)
        place = {"offset": offset, "length": length, "key": key, "target_offset": start}
        self._track(
            number,
            lambda: self._peer.post_write(arena.region, **place, immediate=immediate),
            lambda _status: arena.free(offset, length=length),
            cancelled=self._plan.cancelled,
        )
        return True

    def _target(self) -> layout.GuardedMemory:
        return layout.target(
            self._sender.worker,
            incarnation=self._sender.incarnation,
            receiver_incarnation=self._receiver["incarnation"],
            size_bytes=1 << 10,
        )

    def _post_giant(self, region: Region) -> None:
        length, number = self._plan.giant_bytes, self._number()
        key, at, _size = self._receiver["keys"][f"{self._sender.worker}.{self._sender.incarnation}"][0]
        self._used[0] = length
        self._note("write", self.number, number, length, self._target().name, at, at, NO_FLAW)
        place = {"offset": 0, "length": length, "key": key, "target_offset": 0}
        self._track(number, lambda: self._peer.post_write(region, **place, immediate=at), lambda _status: None)

    def _post_read(self, length: int) -> bool:
        """Read from the memory of the receiver into a local range that no other read uses."""
        which = self._rng.randrange(2)
        registration, at = self._sender.read_ranges[which]
        start = self._sender.read_used[which] + self._rng.randrange(64)
        key, source_at, source_size = self._receiver["source"][self._rng.randrange(2)]
        length = min(length, registration.length - start, source_size)
        if length < 0:
            return self._post_send(min(64, self._plan.longest_bytes))
        from_offset = self._rng.randint(0, source_size - length)
        number = self._number()
        flaw = self._rng.choice((KEY_FLAW, RANGE_FLAW)) if self._rng.random() < self._plan.flawed else NO_FLAW
        if flaw == KEY_FLAW:
            key ^= 1
        elif flaw == RANGE_FLAW:
            from_offset = source_size - length + 1
        self._sender.read_used[which] = start + length
        details = [self._receiver["incarnation"], source_at + from_offset, at + start]
        self._note("read", self.number, number, length, *details, flaw)
        place = {"offset": start, "length": length, "key": key, "source_offset": from_offset}
        self._track(
            number,
            lambda: self._peer.post_read(registration, **place),
            partial(self._check_read, number, at + start, length, source_at + from_offset),
            cancelled=self._plan.cancelled,
        )
        return True

    def _check_read(self, number: int, at: int, length: int, source_at: int, status: int) -> None:
        if status != Status.OK:
            return
        found = np.asarray(self._sender.read_region.array)[at : at + length]
        wrong = check(found, self._sender.seed, owner=SOURCE, message=self._receiver["incarnation"], offset=source_at)
        if wrong:
            self._note(
                "wrong", f"read {number} of connection {self.number}, {length} bytes, at its completion: {wrong}"
            )
