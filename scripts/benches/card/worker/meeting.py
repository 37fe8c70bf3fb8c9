"""How two applications meet: the receiving one listens at a TCP port and tells it to the bench, the other connects.

They exchange the addresses of their endpoints, and keep in step by objects (`multiprocessing.connection`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Client, Connection, Listener

from scripts.benches.card.worker.endpoint import Address, CardEndpoint
from scripts.harness.events import emit


@contextmanager
def listening(endpoints: Sequence[CardEndpoint]) -> Iterator[Connection]:
    """Wait for the other end, and connect the endpoints to its."""
    with Listener(("", 0), family="AF_INET") as listener:
        emit("listening", port=listener.address[1])
        accepted = listener.accept()
    with accepted as exchange:
        _connect(exchange, endpoints)
        yield exchange


@contextmanager
def connected(host: str, port: int, endpoints: Sequence[CardEndpoint]) -> Iterator[Connection]:
    """Connect to the other end, and the endpoints to its."""
    with Client((host, port), family="AF_INET") as exchange:
        _connect(exchange, endpoints)
        yield exchange


def _connect(exchange: Connection, endpoints: Sequence[CardEndpoint]) -> None:
    """Both ends are in RTS when this returns. Objects of the start are left out of garbage collections."""
    exchange.send({"endpoints": [endpoint.address.to_dict() for endpoint in endpoints]})
    remotes = exchange.recv()["endpoints"]
    for endpoint, remote in zip(endpoints, remotes, strict=True):
        endpoint.connect(Address(**remote))
    gc.collect()
    gc.freeze()
    exchange.send({"connected": True})
    exchange.recv()
