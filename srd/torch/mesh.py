"""The ranks of one group, as this rank sees them: a link to each, collectives one after the other, sends by tag.

Collectives of a group run in the order of their calls, one at a time, as with NCCL's stream: two of them may work on
the same tensor, and all ranks count them alike. Sends and receives between two ranks run beside them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from srd import Endpoint
from srd.torch.device import Closable
from srd.torch.group_error import GroupError
from srd.torch.memory import Block, Land
from srd.torch.registered import Registrations
from srd.torch.transfers import SLOTS, Done, Envelope, In, Out, RankLink, identity

Body = Callable[["Collective"], Coroutine[Any, Any, None]]


class Collective:
    """One collective at this rank: its transfers, and when they are done. Slots tell transfers of two ranks apart."""

    def __init__(self, mesh: Mesh, *, sequence: int) -> None:
        self.mesh, self.rank, self.size, self.ring = mesh, mesh.rank, mesh.size, mesh.ring
        self.leaf, self.column = mesh.leaf, mesh.column
        self._sequence = sequence
        self._arriving = self._leaving = 0
        self._error: GroupError | None = None
        self._changed: asyncio.Future[None] | None = None
        self._grants: dict[RankLink, list[bytes]] = {}

    def send(self, rank: int, block: Block, *, slot: int = 0, held: bool = False) -> Out:
        """Begin to send a block to a rank. `held`: its pieces follow by `Out.ready`."""
        if slot >= SLOTS:
            raise GroupError(f"{self.size} ranks are too many for this collective; it takes {SLOTS // 2}")
        self._leaving += 1
        out = self.mesh.links[rank].begin_out(block, identity=identity(self._sequence, slot=slot), done=self._left)
        if not held:
            for piece in range(out.pieces):
                out.ready(piece)
        return out

    def receive(
        self,
        rank: int,
        block: Block,
        *,
        land: Land | None = None,
        slot: int = 0,
        then: Callable[[int], None] | None = None,
    ) -> None:
        """Begin to receive a block from a rank, or as much, which `land` takes; `then`: called with each piece.

        Call `arrived` or `finish` before the loop runs again.
        """
        self._arriving += 1
        link = self.mesh.links[rank]
        name = identity(self._sequence, slot=slot)
        if granted := link.begin_in(In(block, identity=name, done=self._landed, land=land, then=then)):
            self._grants.setdefault(link, []).append(granted)

    async def arrived(self) -> None:
        """Wait until all that was to be received has landed. Raises GroupError."""
        await self._until(lambda: not self._arriving)

    async def finish(self) -> None:
        """Wait until all that was to be received has landed, and all that was sent is acknowledged, or copied."""
        await self._until(lambda: not (self._arriving or self._leaving))

    async def _until(self, is_so: Callable[[], bool]) -> None:
        for link, granted in self._grants.items():
            link.grant(granted)
        self._grants.clear()
        while self._error is None and not is_so():
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed
        if self._error is not None:
            raise self._error

    def _landed(self, error: GroupError | None) -> None:
        self._arriving -= 1
        self._note(error, is_last=not self._arriving)

    def _left(self, error: GroupError | None) -> None:
        self._leaving -= 1
        self._note(error, is_last=not self._leaving)

    def _note(self, error: GroupError | None, *, is_last: bool) -> None:
        self._error = self._error or error
        if (is_last or error) and self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


class Receive:
    """A receive that was posted: from `rank`, or from any."""

    __slots__ = ("block", "done", "rank", "tag")

    def __init__(self, block: Block, *, rank: int | None, tag: int, done: Callable[[GroupError | None, int], None]):
        self.block, self.rank, self.tag, self.done = block, rank, tag, done

    def matches(self, envelope: Envelope) -> bool:
        """Whether it takes this envelope."""
        return envelope.tag == self.tag and self.rank in {None, envelope.rank}


def leaf_and_column(
    ring: Sequence[int], *, leaves: Sequence[str], rank: int
) -> tuple[Sequence[int] | None, Sequence[int]]:
    """Return the ranks of a rank's leaf, and those that have its place in theirs; None unless the leaves are alike."""
    rows = [list(row) for _, row in itertools.groupby(ring, key=lambda each: leaves[each])]
    if len(rows) == 1 or {len(row) for row in rows} != {len(rows[0])} or len(rows[0]) == 1:
        return None, ()
    leaf = next(row for row in rows if rank in row)
    return leaf, [row[leaf.index(rank)] for row in rows]


class Mesh:
    """A rank's links to all others. Used on the loop's thread alone."""

    def __init__(self, endpoint: Endpoint | None, *, rank: int, hosts: Sequence[str], leaves: Sequence[str]) -> None:
        """`leaves`: what each rank says of its place; ranks of one leaf are neighbours in the ring."""
        self.endpoint, self.rank, self.size, self.hosts = endpoint, rank, len(hosts), hosts
        self.ring = sorted(range(self.size), key=lambda each: (leaves[each], each))
        self.leaf, self.column = leaf_and_column(self.ring, leaves=leaves, rank=rank)
        self.links: dict[int, RankLink] = {}
        self.error: GroupError | None = None
        self._collectives = 0
        self._queue: deque[tuple[str, float, Body, Done]] = deque()
        self._running: asyncio.Task[None] | None = None
        self._receives: list[Receive] = []
        self._envelopes: list[Envelope] = []
        self.closing: list[Closable] = []  # in this order, when the group is closed
        self.stop_waiting: Callable[[], None] | None = None
        """Ends what the running collective waits for that is no other rank: its device."""
        self._registrations = None if endpoint is None else Registrations(endpoint)

    # -- collectives --------------------------------------------------------------------------------------------------

    def collective(self) -> Collective:
        """Begin the next collective."""
        self._collectives += 1
        return Collective(self, sequence=self._collectives)

    def run(self, name: str, body: Body, *, timeout_s: float, done: Done) -> None:
        """Run a collective after those before it."""
        self._queue.append((name, timeout_s, body, done))
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._queue:
            name, timeout_s, body, done = self._queue.popleft()
            error = self.error or await self._run_one(name, body, timeout_s=timeout_s)
            done(error)
        self._running = None

    async def _run_one(self, name: str, body: Body, *, timeout_s: float) -> GroupError | None:
        timer = asyncio.get_running_loop().call_later(timeout_s, self._expire, name, timeout_s)
        try:
            await body(self.collective())
        except GroupError as error:
            self.fail(error)
            return error
        except Exception as error:  # noqa: BLE001 - of torch, for example: it ends the work, and not the loop
            failed = GroupError(f"{name}: {error!r}")
            self.fail(failed)
            return failed
        finally:
            timer.cancel()
        return self.error

    def _expire(self, name: str, timeout_s: float) -> None:
        what = f"{name}: not done within its timeout of {timeout_s:g} s"
        self.fail(GroupError(f"{what}; rank {self.rank} waits for {self._awaited}"))

    # -- from rank to rank --------------------------------------------------------------------------------------------

    def receive(self, receive: Receive) -> None:
        """Receive what matches, now or later."""
        for envelope in self._envelopes:
            if receive.matches(envelope):
                self._envelopes.remove(envelope)
                self._match(receive, envelope)
                return
        rank = receive.rank
        link = None if rank is None else self.links.get(rank)
        error = self.error or (None if link is None else link.error)
        if error is not None:
            receive.done(error, -1)
            return
        self._receives.append(receive)

    def send_to_self(self, block: Block, *, tag: int) -> None:
        """Send to this rank's own receives."""
        content = bytes(block.view) if block.length else b""
        self.on_envelope(Envelope(None, rank=self.rank, tag=tag, length=block.length, content=content))

    def target(self, block: Block) -> bytes:
        """Return where in registered memory a block lies, for the other ranks; empty: it does not."""
        if self._registrations is None:
            return b""
        return self._registrations.target(block, peers=[link.peer for link in self.links.values()])

    def on_envelope(self, envelope: Envelope) -> None:
        """Give what another rank sends to the first receive that matches."""
        for receive in self._receives:
            if receive.matches(envelope):
                self._receives.remove(receive)
                self._match(receive, envelope)
                return
        self._envelopes.append(envelope)

    def _match(self, receive: Receive, envelope: Envelope) -> None:
        rank, block = envelope.rank, receive.block
        if envelope.length != block.length:
            what = f"rank {rank} at {self.hosts[rank]} sends {envelope.length} bytes"
            if envelope.link is not None:
                envelope.link.drop(envelope)
            receive.done(GroupError(f"{what}, and the tensor has {block.length}"), rank)
        elif envelope.link is not None:
            envelope.link.receive(envelope, block, done=lambda error: receive.done(error, rank))
        else:
            if block.length and envelope.content:
                block.view[:] = envelope.content
            receive.done(None, rank)

    # -- ends ---------------------------------------------------------------------------------------------------------

    @property
    def _awaited(self) -> str:
        """The ranks that this one waits for."""
        return ", ".join(link.name for link in self.links.values() if link.awaited) or "nobody"

    def on_farewell(self, reason: str) -> None:
        """End all with the reason that another rank gave, and what this one waits for: it may know more."""
        self.fail(GroupError(reason if " waits for " not in reason else f"{reason}; which waits for {self._awaited}"))

    def on_lost(self, link: RankLink, error: GroupError, *, is_fatal: bool) -> None:
        """End what needs a rank that is gone; all, if it did not leave in order."""
        if is_fatal:
            self.fail(error)
            return
        link.fail(error)
        self._fail_receives(error, rank=link.rank)

    def fail(self, error: GroupError) -> None:
        """End everything, and all that is begun later, with an error; the other ranks get it, too."""
        if self.error is not None:
            return
        self.error = error
        if self._registrations is not None:
            self._registrations.withdraw_all()
        for link in self.links.values():
            link.say_farewell(str(error))
        for link in self.links.values():
            link.fail(error)
        self._fail_receives(error, rank=None)
        if self.stop_waiting is not None:
            self.stop_waiting()

    def _fail_receives(self, error: GroupError, *, rank: int | None) -> None:
        failed = [each for each in self._receives if rank is None or each.rank == rank]
        self._receives = [each for each in self._receives if each not in failed]
        for receive in failed:
            receive.done(error, -1)

    async def close(self) -> None:
        """Let what was sent arrive, and leave the group."""
        if self.error is None:
            self.error = GroupError("the process group is closed")
        if self.endpoint is not None:
            await self.endpoint.close()
        for each in self.closing:  # the others must hear first that this rank has left
            each.close()
