"""A measurement from its first line to its last, at the client and at the server.

    client                                       server
    {"plan": {...}, "address": {...}}
                                                 {"address": {...}}
    {"size": 64}                                     for each size
                                                 {"ready": true}
    ... messages between the cards ...
    {"round": 8, "size": 64, "start": 0}             compare a round of WRITEs, with --check
                                                 {"ok": true}
    {"end": 64}
                                                 {"ok": true}
    {"bye": true}

Instead of any line, {"error": "..."} ends both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from nitro_emu.errors import NitroError
from nitro_emu.perf import bandwidth, latency
from nitro_emu.perf.bandwidth import Stream
from nitro_emu.perf.endpoint import PerfEndpoint
from nitro_emu.perf.exchange import Exchange
from nitro_emu.perf.latency import RoundTrips
from nitro_emu.perf.plan import MAX_BYTES, MAX_ITERATIONS, Address, PerfError, Plan, Tool, number_untrusted
from srd.perf.figures import BandwidthFigures, LatencyFigures

Figures = LatencyFigures | BandwidthFigures
OnConnected = Callable[[Address, Address], None]
"""Called with the addresses of this end and of the other."""

_ROOMS: Final = {Tool.LATENCY: latency.room_for, Tool.BANDWIDTH: bandwidth.room_for}


class End(Protocol):
    """What a measurement does at either end; one class has both parts."""

    def prepare(self, size_bytes: int) -> None:
        """At the server: prepare for the messages of a size."""

    def serve(self, size_bytes: int) -> None:
        """At the server: receive them, and answer them if they are to be answered."""

    def verify(self, count: int, *, size_bytes: int, start: int) -> None:
        """At the server: compare what a round of WRITEs has written."""

    def measure(self, size_bytes: int) -> Figures:
        """At the client: send the messages of a size."""


def _end(endpoint: PerfEndpoint, plan: Plan) -> End:
    return RoundTrips(endpoint, plan) if plan.tool == Tool.LATENCY else Stream(endpoint, plan)


def run_client(
    exchange: Exchange, plan: Plan, *, device: str | None, run_dir: Path, events: bool, on_connected: OnConnected
) -> Iterator[Figures]:
    """Measure, and yield the figures of each size when they are there. Raises PerfError and VerbsError.

    Sizes that are longer than a SEND may be are left out, unless no other is left.
    """
    with (
        _telling_errors(exchange),
        PerfEndpoint(
            device, run_dir=run_dir, exchange=exchange, room=_ROOMS[plan.tool](plan), events=events
        ) as endpoint,
    ):
        exchange.send(plan=plan.as_dict(), address=endpoint.address.as_dict())
        remote = Address.of_untrusted(_part_untrusted(exchange.receive(), "address"))
        endpoint.connect(remote)
        on_connected(endpoint.address, remote)
        plan = plan.within(min(endpoint.address.mtu_bytes, remote.mtu_bytes))
        own = _end(endpoint, plan)
        for size_bytes in plan.sizes:
            exchange.send(size=size_bytes)
            exchange.receive()
            figures = own.measure(size_bytes)
            exchange.send(end=size_bytes)
            exchange.receive()
            yield figures
        exchange.send(bye=True)


def run_server(
    exchange: Exchange, tool: Tool, *, device: str | None, run_dir: Path, events: bool, on_connected: OnConnected
) -> Plan:
    """Do what a client asks for, and return it. Raises PerfError and VerbsError."""
    with _telling_errors(exchange):
        first = exchange.receive()
        plan = Plan.of_untrusted(_part_untrusted(first, "plan"))
        remote = Address.of_untrusted(_part_untrusted(first, "address"))
        if plan.tool != tool:
            raise PerfError(f"the client measures {plan.tool}, the server {tool}; start the same command at both ends")
        with PerfEndpoint(
            device, run_dir=run_dir, exchange=exchange, room=_ROOMS[plan.tool](plan), events=events
        ) as endpoint:
            endpoint.connect(remote)
            plan = plan.within(min(endpoint.address.mtu_bytes, remote.mtu_bytes))
            own = _end(endpoint, plan)
            exchange.send(address=endpoint.address.as_dict())
            on_connected(endpoint.address, remote)
            while "bye" not in (request := exchange.receive()):
                _serve_untrusted(request, own, plan=plan, exchange=exchange)
    return plan


def _serve_untrusted(request: dict[str, Any], own: End, *, plan: Plan, exchange: Exchange) -> None:
    if "end" not in request:
        size_bytes = number_untrusted(request, "size", low=1, high=MAX_BYTES)
        if size_bytes not in plan.sizes:
            raise PerfError(f"the other end sent size: {size_bytes}, which is not in its plan")
        if "round" not in request:
            own.prepare(size_bytes)
            exchange.send(ready=True)
            own.serve(size_bytes)
            return
        count = number_untrusted(request, "round", low=1, high=MAX_ITERATIONS)
        own.verify(count, size_bytes=size_bytes, start=number_untrusted(request, "start", low=0, high=MAX_ITERATIONS))
    exchange.send(ok=True)


def _part_untrusted(fields: dict[str, Any], name: str) -> dict[str, Any]:
    part = fields.get(name)
    if not isinstance(part, dict):
        raise PerfError(f"the other end sent no {name}; both ends need the same version")
    return part


@contextmanager
def _telling_errors(exchange: Exchange) -> Iterator[None]:
    """Tell the other end why this one ends."""
    try:
        yield
    except NitroError as error:
        with suppress(PerfError):
            exchange.send(error=str(error))
        raise
