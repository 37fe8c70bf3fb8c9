"""Which address of a name to use: the first that answers (RFC 8305, Happy Eyeballs).

The next address is tried when one has failed, or has not answered within ATTEMPT_DELAY_S; those before go on. The first
that opens ends the others. One that answers with a refusal ends all: it is the host that was meant.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from srd.errors import NoRouteError, PeerError, SrdError
from srd.io.addresses import host_text
from srd.io.syscalls import Address
from srd.peer import Peer
from srd.proto.wire.status import Status

ATTEMPT_DELAY_S: Final = 0.25
"""Connection Attempt Delay (RFC 8305, section 8)."""
_NO_ANSWER: Final = (Status.LOCAL_ERROR_UNRESP_REMOTE, Status.LOCAL_ERROR_UNREACH_REMOTE)

Attempt = Callable[[Address], Coroutine[Any, Any, Peer]]


async def first_answer(attempt: Attempt, addresses: Sequence[Address]) -> Peer:
    """Return the peer that `attempt` opens first, at one of these addresses. Raises SrdError, PeerError."""
    if len(addresses) == 1:
        return await attempt(addresses[0])
    waiting, running = deque(addresses), dict[asyncio.Task[Peer], Address]()
    errors: list[tuple[SrdError, Address]] = []
    try:
        while waiting or running:
            if waiting:
                address = waiting.popleft()
                running[asyncio.ensure_future(attempt(address))] = address
            delay_s = ATTEMPT_DELAY_S if waiting else None
            done, _ = await asyncio.wait(running, timeout=delay_s, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in running if task in done]:
                try:
                    peer = task.result()
                except SrdError as error:
                    if not _may_be_elsewhere(error):
                        raise
                    errors.append((error, running.pop(task)))
                else:
                    del running[task]
                    return peer
    finally:
        await _end(running)
    raise _all_failed(errors)


async def _end(running: dict[asyncio.Task[Peer], Address]) -> None:
    """Give up attempts; close what they have opened."""
    for task in running:
        task.cancel()
    for opened in await asyncio.gather(*running, return_exceptions=True):
        if isinstance(opened, Peer):
            await opened.close()


def _may_be_elsewhere(error: SrdError) -> bool:
    """Whether another address of the name may answer."""
    return isinstance(error, NoRouteError) or (isinstance(error, PeerError) and error.status in _NO_ANSWER)


def _all_failed(errors: Sequence[tuple[SrdError, Address]]) -> SrdError:
    """Return one error for all: that there is no route to some says nothing if others were tried."""
    peers = [(error, address) for error, address in errors if isinstance(error, PeerError)]
    if not peers:
        return errors[0][0]
    last = peers[-1][0]
    if len({str(error) for error, _ in peers}) == 1:
        return last
    return PeerError("; ".join(f"{error} at {host_text(address)}" for error, address in peers), status=last.status)
