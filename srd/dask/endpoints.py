"""Endpoints, and how long they live: as long as one of their peers does, or somebody listens, or connects.

All comms that a loop opens share one endpoint; a listener has its own. Both are closed with the last comm, which may
outlive the listener.
"""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

import dask
from dask.utils import parse_timedelta

from netns.base.tasks import Tasks
from srd import Endpoint, EndpointConfig, Peer, Plain, ProtocolConfig, Psk
from srd.secure.keys import read_psk

KEY_FILE: Final = "distributed.comm.srd.key-file"
SILENCE: Final = "distributed.comm.timeouts.tcp"


def is_encrypted() -> bool:
    """Whether Dask's configuration names a key."""
    return bool(dask.config.get(KEY_FILE, default=None))


def config() -> EndpointConfig:
    """Return the settings that Dask's configuration asks for. Raises SrdError for a key file that cannot be read.

    A task may hold the interpreter for long, and a comm may be idle, or not be read, for ever.
    """
    silence_s = float(parse_timedelta(dask.config.get(SILENCE, default="30s"), default="seconds"))
    protocol = ProtocolConfig(unresponsive_after_s=silence_s, request_timeout_s=float("inf"))
    path = dask.config.get(KEY_FILE, default=None)
    if not path:
        return EndpointConfig(protocol=protocol, security=Plain())
    return EndpointConfig(protocol=protocol, security=Psk(_key(path)))


@cache
def _key(path: str) -> bytes:
    """Return the key in a file, as `srd --psk-file` reads it; a passphrase takes a tenth of a second."""
    return read_psk(Path(path))


class SharedEndpoint:
    """An endpoint with its users."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._users = 0
        self.tasks = Tasks()
        self.is_closed = False

    def take(self) -> None:
        """Count one more user."""
        self._users += 1

    def leave(self) -> None:
        """Count one less; the last one closes it."""
        self._users -= 1
        if not self._users:
            self.is_closed = True
            self.tasks.start(self.endpoint.close())


_connecting: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[bool, SharedEndpoint]] = WeakKeyDictionary()


async def connect(host: str, port: int) -> tuple[SharedEndpoint, Peer]:
    """Open a peer from this loop's endpoint; its user is counted. Raises SrdError."""
    endpoints = _connecting.setdefault(asyncio.get_running_loop(), {})
    shared = endpoints.get(":" in host)
    if shared is None or shared.is_closed:
        endpoint = await Endpoint.open(towards=host, config=config())
        other = endpoints.get(":" in host)  # another task may have been faster
        if other is None or other.is_closed:
            shared = endpoints[":" in host] = SharedEndpoint(endpoint)
        else:
            shared = other
            await endpoint.close()
    shared.take()
    try:
        return shared, await shared.endpoint.connect(host, port)
    except BaseException:
        shared.leave()
        raise
