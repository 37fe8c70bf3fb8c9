"""How two applications meet: the receiving one listens at a TCP port and tells it to the bench, the other connects.

They exchange the addresses of their endpoints, and keep in step by lines of JSON (`nitro_emu.perf.exchange`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nitro_emu.perf.exchange import Exchange
from scripts.benches.card.worker.endpoint import Address, CardEndpoint
from scripts.harness.events import emit


@contextmanager
def listening(endpoints: Sequence[CardEndpoint]) -> Iterator[Exchange]:
    """Wait for the other end, and connect the endpoints to its."""
    with Exchange.accept(0, on_listening=lambda port: emit("listening", port=port)) as exchange:
        _connect(exchange, endpoints)
        yield exchange


@contextmanager
def connected(host: str, port: int, endpoints: Sequence[CardEndpoint]) -> Iterator[Exchange]:
    """Connect to the other end, and the endpoints to its."""
    with Exchange.connect(host, port=port) as exchange:
        _connect(exchange, endpoints)
        yield exchange


def _connect(exchange: Exchange, endpoints: Sequence[CardEndpoint]) -> None:
    """Both ends are in RTS when this returns. Objects of the start are left out of garbage collections."""
    exchange.send(endpoints=[endpoint.address.to_dict() for endpoint in endpoints])
    remotes = exchange.receive()["endpoints"]
    for endpoint, remote in zip(endpoints, remotes, strict=True):
        endpoint.connect(Address(**remote))
    gc.collect()
    gc.freeze()
    exchange.send(connected=True)
    exchange.receive()
