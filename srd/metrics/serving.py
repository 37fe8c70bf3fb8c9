"""Serves an endpoint's metrics while a block runs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from netns.base.addresses import host_port_text
from netns.base.http_server import HttpServer, wants_openmetrics
from srd.endpoint import Endpoint
from srd.errors import SrdError
from srd.metrics.snapshot import Family, Snapshot, collect

METRICS: Final = "/metrics"
PEERS: Final = "/peers"
"""What `srd top` reads."""
MAX_AGE_S: Final = 0.25
"""How old a snapshot may be: whoever asks more often gets the same again, which costs nothing."""
OPTION: Final = "--metrics"


class SnapshotSource:
    """Makes the answers, of one snapshot for all who ask at about the same time."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        title: str,
        render: Callable[..., tuple[str, bytes]],
        families: Callable[[], Sequence[Family]] | None = None,
    ) -> None:
        self._families = families
        self._endpoint = endpoint
        self._title = title
        self._render = render
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="metrics")  # the loop's threads have files to store
        self._lock = asyncio.Lock()
        self._snapshot: Snapshot | None = None
        self._made: dict[tuple[str, bool], tuple[str, bytes]] = {}  # of this snapshot, by what was asked for

    async def metrics(self, accept: str) -> tuple[str, bytes]:
        """Return the metrics."""
        wanted = wants_openmetrics(accept)
        return await self._answer((METRICS, wanted), partial(self._render, as_openmetrics=wanted))

    async def peers(self, accept: str) -> tuple[str, bytes]:  # noqa: ARG002 - there is one format
        """Return the state of each peer."""
        return await self._answer((PEERS, False), _json)

    async def _answer(
        self, name: tuple[str, bool], render: Callable[[Snapshot], tuple[str, bytes]]
    ) -> tuple[str, bytes]:
        async with self._lock:
            if self._snapshot is None or time.monotonic() > self._snapshot.at_s + MAX_AGE_S:
                self._snapshot = await collect(self._endpoint, title=self._title, families=self._families)
                self._made.clear()
            if (made := self._made.get(name)) is None:
                loop = asyncio.get_running_loop()
                made = self._made[name] = await loop.run_in_executor(self._pool, render, self._snapshot)
            return made

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _json(snapshot: Snapshot) -> tuple[str, bytes]:
    return "application/json", json.dumps(snapshot.as_json()).encode()


@asynccontextmanager
async def serving(
    address: tuple[str, int] | None,
    endpoint: Endpoint,
    *,
    title: str,
    say: Callable[[str], None],
    families: Callable[[], Sequence[Family]] | None = None,
) -> AsyncIterator[tuple[str, int] | None]:
    """Serve an endpoint's metrics at `address`, and say where; yield it, or None if there is none. Raises SrdError.

    `families` returns metrics of the endpoint's user, to be served beside them.
    """
    if address is None:
        yield None
        return
    try:
        from srd.metrics.exposition import exposition  # noqa: PLC0415 - only if it is asked for
    except ModuleNotFoundError as error:
        raise SrdError(f"{OPTION}: needs {error.name}; install it, in the checkout: pip install '.[cli]'") from error
    source = SnapshotSource(endpoint, title=title, render=exposition, families=families)
    try:
        routes = {METRICS: source.metrics, PEERS: source.peers}
        server = await HttpServer.listen(address, routes=routes, option=OPTION, error=SrdError)
        try:
            say(f"metrics at http://{host_port_text(*server.address)}{METRICS}")
            yield server.address
        finally:
            await server.close()
    finally:
        source.close()
