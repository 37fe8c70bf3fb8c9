"""Sweeps between two endpoints on loopback: what is measured, what is compared, and what a client may send."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import numpy as np
import pytest

from srd.endpoint import Endpoint
from srd.perf.control import VERSION, Control, ControlKind
from srd.perf.errors import PerfError
from srd.perf.figures import BandwidthFigures, LatencyFigures
from srd.perf.parameters import Protocol
from srd.perf.payload import PayloadSource, Shifted
from srd.perf.sweep import measures
from srd.perf.sweep.carrier import Joined
from srd.perf.sweep.kernel import in_thread
from srd.perf.sweep.plan import Operation, Sweep, encode
from srd.perf.sweep.rows import Rows
from srd.perf.tcp_socket import CUBIC
from tests.patience import PATIENCE_S, until
from tests.srd.loopback import PLAIN
from tests.srd.perf.ends import HOST, Served, served
from tests.srd.perf.test_runs import until_free

SIZES = (1, 2, 63, 4096, 70_000, 2 << 20)
ALL = [
    *((operation, Protocol.SRD) for operation in Operation),
    # A kernel may allow only root to choose cubic.
    *(pytest.param(each, Protocol.TCP, marks=pytest.mark.root) for each in (Operation.LATENCY, Operation.RATE)),
]


def sweep(operation: Operation, protocol: Protocol = Protocol.SRD, **fields: Any) -> Sweep:
    wanted = {"sizes": SIZES, "iterations": 7, "verify": True, **fields}
    return Sweep(operation, protocol, CUBIC if protocol is Protocol.TCP else "", **wanted)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(("operation", "protocol"), ALL)
async def test_every_size_has_a_row(operation: Operation, protocol: Protocol, verify: bool) -> None:  # noqa: FBT001
    async with served() as server:
        rows = await server.sweep(sweep(operation, protocol, verify=verify))
        await server.sweep(sweep(operation, protocol, sizes=(64,)))  # it serves another one
    assert [row.figures.size_bytes for row in rows] == [*SIZES]
    for row in rows:
        assert row.figures.iterations == 7
        assert isinstance(row.figures, LatencyFigures if operation is Operation.LATENCY else BandwidthFigures)
        assert row.dropped == row.remote_dropped == 0
        assert row.remote_cpu_s > 0
    assert "Accepted connection from" in server.output[0]
    assert server.notes == []


@pytest.mark.parametrize("operation", [Operation.RATE, Operation.WRITE, Operation.READ])
async def test_peers_share_the_iterations(operation: Operation) -> None:
    async with served() as server:
        for iterations in (1, 1000):
            rows = await server.sweep(sweep(operation, peers=3, sizes=(64, 20_000), iterations=iterations))
            assert [row.figures.iterations for row in rows] == [iterations] * 2


@pytest.mark.parametrize(("operation", "protocol"), ALL)
async def test_a_time_instead_of_iterations(operation: Operation, protocol: Protocol) -> None:
    async with served() as server:
        for verify in (True, False):
            wanted = sweep(operation, protocol, sizes=(64, 20_000), iterations=0, seconds=0.1, verify=verify)
            assert all(row.figures.iterations >= 1 for row in await server.sweep(wanted))


class DamagedSource(PayloadSource):
    def __init__(self, block_bytes: int) -> None:
        super().__init__(block_bytes)
        self.array[5] ^= 1


class DamagedShifted(Shifted):
    def __init__(self, block_bytes: int) -> None:
        super().__init__(block_bytes)
        self.array[5] ^= 1


class DamagedRows(Rows):
    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.rows[0, 5] ^= 1


@pytest.mark.parametrize(("operation", "protocol"), ALL)
async def test_a_wrong_byte_is_found(operation: Operation, protocol: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "PayloadSource", DamagedSource)
    monkeypatch.setattr(measures, "Shifted", DamagedShifted)
    monkeypatch.setattr(measures, "Rows", DamagedRows)
    async with served() as server:
        with pytest.raises(PerfError, match="is not what was sent"):
            await server.sweep(sweep(operation, protocol, sizes=(1000,)))
        monkeypatch.undo()
        await until_free(server)


async def test_a_message_that_comes_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = Rows.offsets

    def twice(self: Rows, first: int, count: int) -> Any:
        return np.where(
            offsets(self, first, count) == 2 * self.size_bytes, self.size_bytes, offsets(self, first, count)
        )

    monkeypatch.setattr(Rows, "offsets", twice)
    async with served() as server:
        with pytest.raises(PerfError, match="row 1 was sent 1 times, and has arrived 2 times"):
            await server.sweep(sweep(Operation.RATE, sizes=(64,), iterations=5))


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.READ])
async def test_a_request_to_a_wrong_place_is_found(operation: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    part = measures.Writes if operation is Operation.WRITE else measures.Reads
    post = part._post_at

    def elsewhere(self: Any, peer: int, request: int) -> Any:
        return post(self, peer, request ^ 1 if request == 3 else request)

    monkeypatch.setattr(part, "_post_at", elsewhere)
    async with served() as server:
        with pytest.raises(PerfError, match="of request 3 is not what was sent"):
            await server.sweep(sweep(operation, sizes=(4096,)))


@pytest.mark.parametrize(("operation", "protocol"), ALL)
async def test_second_test_is_refused_while_a_sweep_runs_and_served_after_it(
    operation: Operation, protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()
    measure = Joined.measure

    def noticed(*arguments: Any, **named: Any) -> Any:
        begun.set()
        return measure(*arguments, **named)

    monkeypatch.setattr(Joined, "measure", noticed)
    async with served() as server:
        long = sweep(operation, protocol, iterations=0, seconds=600.0, verify=False)
        running = asyncio.ensure_future(server.sweep(long))
        async with asyncio.timeout(PATIENCE_S):
            await begun.wait()
            with pytest.raises(PerfError, match="the server is busy running a test"):
                await server.sweep(sweep(Operation.RATE))
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await until_free(server)


@pytest.mark.parametrize(("operation", "protocol"), ALL)
async def test_a_server_that_ends_ends_its_client(operation: Operation, protocol: Protocol) -> None:
    async with served(one_off=True) as server:
        long = sweep(operation, protocol, iterations=0, seconds=600.0, verify=False)
        running = asyncio.ensure_future(server.sweep(long))
        async with asyncio.timeout(PATIENCE_S):
            await until(lambda: server.output)
            server.serving.cancel()
            await asyncio.gather(server.serving, return_exceptions=True)
            with pytest.raises(Exception, match=r".+") as caught:
                await running
        assert "\n" not in str(caught.value)


async def test_in_thread__that_is_cancelled_twice_waits_for_its_thread() -> None:
    near, far = socket.socketpair()
    shut, gate = threading.Event(), threading.Event()

    def work() -> None:
        near.recv(1)
        shut.set()
        assert gate.wait(PATIENCE_S)

    with near, far:
        running = asyncio.ensure_future(in_thread(near, work))
        await asyncio.sleep(0)
        running.cancel()
        await until(shut.is_set)
        running.cancel()
        await asyncio.wait([running], timeout=0)
        assert not running.done(), "the thread still runs"
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await running


HOSTILE: dict[str, list[tuple[ControlKind, dict[str, Any]]]] = {
    "a size that was not asked for": [(ControlKind.SIZE, {"size": 3})],
    "a size that is no number": [(ControlKind.SIZE, {"size": "64"})],
    "a size below none": [(ControlKind.SIZE, {"size": -1})],
    "a size within a size": [(ControlKind.SIZE, {"size": 64}), (ControlKind.SIZE, {"size": 64})],
    "no size": [(ControlKind.FIGURES, {"count": 0})],
    "the end of no size": [
        (ControlKind.SIZE, {"size": 64}),
        (ControlKind.FIGURES, {"count": 0}),
        (ControlKind.FIGURES, {"count": 0}),
    ],
    "figures of no number": [(ControlKind.SIZE, {"size": 64}), (ControlKind.FIGURES, {"count": True})],
    "a round of too many": [(ControlKind.SIZE, {"size": 64}), (ControlKind.CHECK, {"first": 0, "count": 1 << 40})],
    "a round of none": [(ControlKind.SIZE, {"size": 64}), (ControlKind.CHECK, {"first": 0, "count": 0})],
    "a round far away": [(ControlKind.SIZE, {"size": 64}), (ControlKind.CHECK, {"first": 1 << 59, "count": 1})],
    "a round beyond all": [(ControlKind.SIZE, {"size": 64}), (ControlKind.CHECK, {"first": 1 << 62, "count": 1})],
    "a kind of another test": [(ControlKind.RESULTS, {})],
}


@pytest.mark.parametrize("requests", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.RATE])
async def test_requests_out_of_turn_end_the_test_and_nothing_else(
    operation: Operation, requests: list[tuple[ControlKind, dict[str, Any]]]
) -> None:
    async with served() as server, await Endpoint.open(towards=HOST, config=PLAIN) as endpoint:
        async with asyncio.timeout(PATIENCE_S):
            control, _ = await joined(server, endpoint, sweep(operation, sizes=(64,)))
            *before, last = requests
            for kind, fields in before:
                await control.send(kind, **fields)
                await control.receive(ControlKind.ANSWER)
            await control.send(last[0], **last[1])
            with pytest.raises(PerfError, match=r"client|round|what was sent|expected"):
                await control.receive(ControlKind.RESULTS)
            control.close()
            await until_free(server)


async def joined(server: Served, endpoint: Endpoint, wanted: Sweep) -> tuple[Control, Any]:
    """A sweep that has begun: its control channel, and its peer for the data."""
    peer = await endpoint.connect(HOST, server.port)
    control = Control(*await peer.open_stream())
    await control.send(ControlKind.TEST, version=VERSION, sweep=encode(wanted))
    _, ready = await control.receive(ControlKind.READY)
    data = await endpoint.connect(HOST, server.port)
    join = Control(*await data.open_stream())
    await join.send(ControlKind.JOIN, cookie=ready["cookie"], stream=0)
    await control.receive(ControlKind.START)
    return control, data


@pytest.mark.parametrize("operation", [Operation.LATENCY, Operation.RATE])
async def test_data_that_nobody_expects_ends_the_test(operation: Operation) -> None:
    async with served() as server, await Endpoint.open(towards=HOST, config=PLAIN) as endpoint:
        async with asyncio.timeout(PATIENCE_S):
            control, data = await joined(server, endpoint, sweep(operation, sizes=(64,)))
            await control.send(ControlKind.SIZE, size=64)
            await control.receive(ControlKind.ANSWER)
            await data.send(bytes(65))
            with pytest.raises(PerfError, match="a message of 65 bytes instead of 64"):
                await control.receive(ControlKind.RESULTS)
            control.close()
            await until_free(server)


async def test_less_than_was_sent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srd.perf.sweep.roles.STALL_S", 0.1)
    async with served() as server, await Endpoint.open(towards=HOST, config=PLAIN) as endpoint:
        async with asyncio.timeout(PATIENCE_S):
            control, _ = await joined(server, endpoint, sweep(Operation.RATE, sizes=(64,)))
            await control.send(ControlKind.SIZE, size=64)
            await control.receive(ControlKind.ANSWER)
            await control.send(ControlKind.FIGURES, count=5)
            with pytest.raises(PerfError, match="5 messages were sent, and 0 have arrived"):
                await control.receive(ControlKind.ANSWER)
            control.close()
            await until_free(server)


async def test_a_server_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srd.perf.sweep.server.GRACE_S", 0.1)
    monkeypatch.setattr("srd.perf.sweep.server.WATCH_S", 0.02)
    async with served() as server, await Endpoint.open(towards=HOST, config=PLAIN) as endpoint:
        async with asyncio.timeout(PATIENCE_S):
            control, _ = await joined(server, endpoint, sweep(Operation.READ, sizes=(64,)))
            with pytest.raises(PerfError, match="the client did not go on in time"):
                await control.receive(ControlKind.ANSWER)
            control.close()


@pytest.mark.parametrize(
    ("version", "fields", "error"),
    [
        (VERSION - 1, {"sweep": encode(Sweep(Operation.RATE))}, "different versions"),
        (VERSION, {"sweep": None}, "a sweep without its parameters"),
        (VERSION, {"sweep": {**encode(Sweep(Operation.RATE)), "peers": 10**6}}, "peers: 1000000"),
    ],
)
async def test_what_is_no_sweep_is_refused_with_a_reason(version: int, fields: dict[str, Any], error: str) -> None:
    async with served() as server, await Endpoint.open(towards=HOST, config=PLAIN) as endpoint:
        async with asyncio.timeout(PATIENCE_S):
            peer = await endpoint.connect(HOST, server.port)
            control = Control(*await peer.open_stream())
            await control.send(ControlKind.TEST, version=version, **fields)
            with pytest.raises(PerfError, match=error):
                await control.receive(ControlKind.READY)
            control.close()
            await server.sweep(sweep(Operation.RATE, sizes=(2,)))
