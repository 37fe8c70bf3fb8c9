"""How the two ends of a measurement meet, over TCP, by the messages of `srd.perf.control`.

    client                                       server
    TEST version, verb, sweep, address
                                                 READY address
                                                 START
    ... sizes, as in srd.perf.sweep ...

Instead of any message, FAILED ends both. Whoever reaches the port can take part, as with rdma-core's and perftest's
programs: use them in a trusted network.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Final

from nitro_emu.efa.perf.carrier import QueuePairCarrier, Verb, operation_of, room_of
from nitro_emu.efa.perf.end import Address, QueuePairEnd, QueuePairRoom
from nitro_emu.errors import NitroError
from srd.errors import SrdError
from srd.perf.control import VERSION, Control, ControlKind, Fields
from srd.perf.errors import PerfError
from srd.perf.session import GOODBYE_WITHIN_S
from srd.perf.sweep.client import SizeRow, run_sizes
from srd.perf.sweep.plan import Operation, Sweep, encode, sweep_untrusted
from srd.perf.sweep.server import SizeServer

DEFAULT_PORT: Final = 18515
"""As rdma-core's and perftest's."""
CONNECT_WITHIN_S: Final = 10.0
FIRST_WITHIN_S: Final = 10.0
"""How long who has connected may send nothing; others wait meanwhile. A client begins at once."""

Open = Callable[[ExitStack, QueuePairRoom], QueuePairEnd]
"""Opens this end's device, which the stack closes."""
OnStart = Callable[[QueuePairEnd], None]
"""Told this end when it is connected."""


async def run_client(
    address: tuple[str, int],
    sweep: Sweep,
    verb: Verb,
    *,
    opened: Open,
    on_start: OnStart,
    on_row: Callable[[SizeRow], None],
) -> None:
    """Measure. Raises SrdError, NitroError."""
    with ExitStack() as stack:
        end = opened(stack, room_of(sweep, verb))  # first: a server is not asked without it
        memory = stack.enter_context(ExitStack())
        async with _speaking(await _connect(*address)) as control:
            await control.send(
                ControlKind.TEST, version=VERSION, verb=verb, sweep=encode(sweep), address=end.address.text
            )
            _, fields = await control.receive(ControlKind.READY)
            end.connect(Address.of_untrusted(fields.get("address")))
            await control.receive(ControlKind.START)
            on_start(end)
            carrier = QueuePairCarrier(sweep, verb, end)
            await run_sizes(_sizes(sweep, verb, end), carrier, control=control, memory=memory, on_row=on_row)


async def run_server(
    where: tuple[str, int], *, latency: bool, opened: Open, on_listening: Callable[[int], None], on_start: OnStart
) -> tuple[Sweep, Verb, list[int]]:
    """Serve one client; return what it has asked for, and the messages of each size. Raises SrdError, NitroError."""
    control, fields = await _accept(where, on_listening)
    with ExitStack() as stack:
        async with _speaking(control):
            sweep, verb = _request_untrusted(fields, latency=latency)
            remote = Address.of_untrusted(fields.get("address"))
            end = opened(stack, room_of(sweep, verb))
            end.connect(remote)
            sizes = _sizes(sweep, verb, end)
            await control.send(ControlKind.READY, address=end.address.text)
            on_start(end)
            served = SizeServer(sizes, QueuePairCarrier(sweep, verb, end), control=control)
            try:
                await served.serve()
            finally:
                await served.close()
            await control.ended(within_s=GOODBYE_WITHIN_S)
    return sweep, verb, served.counts


@asynccontextmanager
async def _speaking(control: Control) -> AsyncIterator[Control]:
    """Close the connection at the end; tell the other end why this one ends, and let it hear that."""
    try:
        yield control
    except (SrdError, NitroError) as error:
        with suppress(PerfError):
            await control.send(ControlKind.FAILED, reason=str(error))
            await control.ended(within_s=GOODBYE_WITHIN_S)
        raise
    finally:
        control.close()


async def _connect(host: str, port: int) -> Control:
    try:
        async with asyncio.timeout(CONNECT_WITHIN_S):
            return Control(*await asyncio.open_connection(host, port))
    except OSError as error:
        where, reason = f"{host} port {port}", error.strerror or str(error) or "no answer"
        raise PerfError(f"{where}: {reason}; start the same command there without a host, or check --port") from error


def _sizes(sweep: Sweep, verb: Verb, end: QueuePairEnd) -> list[int]:
    """Return the sizes that the devices can send. Raises PerfError: there are none."""
    most_bytes = min(end.address.mtu_bytes, end.remote.mtu_bytes)
    if sizes := [size for size in sweep.sizes if verb is not Verb.SEND or size <= most_bytes]:
        return sizes
    raise PerfError(f"size: {min(sweep.sizes)} is more than a SEND may have, {most_bytes}; use less, or --write")


async def _accept(where: tuple[str, int], on_listening: Callable[[int], None]) -> tuple[Control, Fields]:
    """Wait for a client at a host, "": all, and a port, 0: any; `on_listening` is told which. Raises PerfError.

    What connects and sends no TEST, as a scanner of ports, is no client.
    """
    connected: asyncio.Queue[Control] = asyncio.Queue()
    host, port = where
    is_dual = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual or ":" in host else socket.AF_INET
    try:
        listener = socket.create_server(where, family=family, dualstack_ipv6=is_dual)
    except OSError as error:
        at = f"{host} " if host else ""
        raise PerfError(f"{at}port {port}: cannot listen: {error.strerror}; choose another with --port") from error
    server = await asyncio.start_server(lambda *streams: connected.put_nowait(Control(*streams)), sock=listener)
    try:
        on_listening(listener.getsockname()[1])
        while True:
            control = await connected.get()
            with suppress(PerfError, TimeoutError):
                async with asyncio.timeout(FIRST_WITHIN_S):
                    _, fields = await control.receive(ControlKind.TEST)
                return control, fields
            control.close()
    finally:
        server.close()


def _request_untrusted(fields: Fields, *, latency: bool) -> tuple[Sweep, Verb]:
    """Return what a client asks for. Raises PerfError, and nothing else."""
    if fields.get("version") != VERSION:
        raise PerfError("client and server are of different versions; update one")
    sweep = sweep_untrusted(fields.get("sweep"))
    if (sweep.operation is Operation.LATENCY) is not latency:
        asked, own = ("bandwidth", "latency") if latency else ("latency", "bandwidth")
        raise PerfError(f"the client measures {asked}, the server {own}; start the same command at both ends")
    verb = next((one for one in Verb if one == fields.get("verb")), None)
    if verb is None or sweep.operation is not operation_of(verb, latency=latency) or sweep.peers != 1:
        raise PerfError(f"the client asks for {fields.get('verb')!r:.100}; there are {', '.join(Verb)}")
    return sweep, verb
