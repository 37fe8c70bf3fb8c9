"""A sweep at the client: it asks the server for each size, and measures it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any, Final

from netns.base.decoding import decoded_untrusted
from netns.base.tasks import first
from srd.perf.client import PerfClient
from srd.perf.control import Control, ControlKind, Fields
from srd.perf.errors import PerfError
from srd.perf.sweep.carrier import Carrier, Joined
from srd.perf.sweep.measures import Figures
from srd.perf.sweep.plan import Sweep, encode

ANSWER_WITHIN_S: Final = 60.0
"""How long a server may take for an answer: it waits for what is on its way."""
_MAX_KEY: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SizeRow:
    """A size."""

    figures: Figures
    cpu_s: float
    """Processor time of this process while it was measured, user and system."""
    remote_cpu_s: float
    """That of the server."""
    dropped: int
    """Datagrams of this endpoint, of any peer, that this host dropped meanwhile."""
    remote_dropped: int
    """Those of the server."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a server says at the end of a size."""

    cpu_s: float
    dropped: int


class _Dialogue:
    """Requests and their answers. What the server says meanwhile, such as why it ends the test, interrupts."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._heard = self._listen()
        self._asks = False

    def _listen(self) -> asyncio.Future[tuple[ControlKind, Fields]]:
        return asyncio.ensure_future(self._control.receive(ControlKind.ANSWER))

    async def ask(self, kind: ControlKind, **fields: object) -> Fields:
        """Ask, and return the answer. Raises PerfError."""
        self._asks = True
        await self._control.send(kind, **fields)
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                _, answer = await asyncio.shield(self._heard)
        except TimeoutError:
            raise PerfError(f"the server did not answer within {ANSWER_WITHIN_S:g} s") from None
        self._heard, self._asks = self._listen(), False
        return answer

    async def interrupted(self) -> None:
        """Raise PerfError when the server says something without being asked, or is gone."""
        while True:
            await asyncio.wait([self._heard])
            if not self._asks:
                self._heard.result()
                raise PerfError("the server has ended the test early")
            await asyncio.sleep(0)  # whoever has asked takes it

    async def close(self) -> None:
        """Listen no more; then somebody else may read what the server says."""
        self._heard.cancel()
        await asyncio.wait([self._heard])
        if not self._heard.cancelled():
            self._heard.exception()


async def run_sweep(
    client: PerfClient, sweep: Sweep, *, on_start: Callable[[str], None], on_row: Callable[[SizeRow], None]
) -> None:
    """Measure each size; `on_start` is told the cookie. Raises SrdError with one line."""
    async with AsyncExitStack() as stack:
        memory = stack.enter_context(ExitStack())  # given back after the peers that use it were closed
        begun = await client.begin(sweep, stack=stack, sweep=encode(sweep))
        on_start(begun.cookie)
        carrier = Joined(sweep, client.endpoint, begun.connections)
        await run_sizes(sweep.sizes, carrier, control=begun.control, memory=memory, on_row=on_row)


async def run_sizes(
    sizes: Sequence[int], carrier: Carrier, *, control: Control, memory: ExitStack, on_row: Callable[[SizeRow], None]
) -> None:
    """Measure each size with a server that has sent START. Raises SrdError with one line.

    What a size that was interrupted has registered is given back by `memory`.
    """
    dialogue = _Dialogue(control)
    try:
        for number, size_bytes in enumerate(sizes):
            on_row(await _measured(size_bytes, carrier, number=number, dialogue=dialogue, memory=memory))
        await dialogue.ask(ControlKind.END)
    finally:
        await dialogue.close()


async def _measured(
    size_bytes: int, carrier: Carrier, *, number: int, dialogue: _Dialogue, memory: ExitStack
) -> SizeRow:
    answer = await dialogue.ask(ControlKind.SIZE, size=size_bytes)

    async def check(first_request: int, count: int) -> None:
        await dialogue.ask(ControlKind.CHECK, first=first_request, count=count)

    keys = _keys_untrusted(answer, peers=carrier.peers)
    measure = carrier.measure(size_bytes, number=number, keys=keys, check=check)
    memory.callback(measure.close)
    await first(measure.warm_up(), dialogue.interrupted())
    await dialogue.ask(ControlKind.BEGIN)
    cpu_s, dropped = time.process_time(), carrier.dropped_packets
    figures = await first(measure.measure(), dialogue.interrupted())
    cpu_s, dropped = time.process_time() - cpu_s, carrier.dropped_packets - dropped
    answer = await dialogue.ask(ControlKind.FIGURES, count=measure.sent)
    remote = _spent_untrusted(answer)
    memory.pop_all()
    measure.close()
    return SizeRow(figures, cpu_s, remote.cpu_s, dropped, remote.dropped)


def _keys_untrusted(answer: Fields, *, peers: int) -> Sequence[int]:
    """Return the keys of the server's memory. Raises PerfError, and nothing else."""
    keys: Any = answer.get("keys")
    if keys == []:
        return [0] * peers  # of what needs none; a request with it is refused by the other end
    if not isinstance(keys, list) or len(keys) != peers:
        raise PerfError("the server sent no keys of its memory")
    if not all(type(key) is int and 0 <= key <= _MAX_KEY for key in keys):
        raise PerfError("the server sent what is no key")
    return keys


def _spent_untrusted(answer: Fields) -> Spent:
    try:
        return decoded_untrusted(Spent, answer)
    except ValueError as error:
        raise PerfError(f"the server sent figures with {error}") from error
