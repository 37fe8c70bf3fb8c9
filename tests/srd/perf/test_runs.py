from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from itertools import pairwise

import pytest

from srd.endpoint import Endpoint
from srd.perf.control import VERSION, Control, ControlKind, encode
from srd.perf.errors import PerfError
from srd.perf.parameters import Direction, Parameters, Protocol
from srd.perf.parameters import encode as encode_parameters
from srd.perf.payload import PayloadSource
from srd.perf.running import RunningStreams
from srd.perf.tcp_socket import CUBIC, why_unavailable
from tests.patience import PATIENCE_S
from tests.srd.loopback import PLAIN
from tests.srd.perf.ends import HOST, SRD_AND_TCP, Seen, Served, served

MIB = 1 << 20


def parameters(protocol: Protocol = Protocol.SRD, **fields: object) -> Parameters:
    block_bytes = MIB if protocol is Protocol.SRD else 128 << 10
    congestion = "" if protocol is Protocol.SRD else CUBIC
    wanted = {"seconds": 0.0, "size_bytes": 3 * MIB + 1, "block_bytes": block_bytes, "verify": True, **fields}
    return Parameters(protocol, congestion, **wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize("protocol", [*SRD_AND_TCP, Protocol.MPTCP])
async def test_every_byte_that_was_sent_arrives_and_is_counted(protocol: Protocol, direction: Direction) -> None:
    if protocol is Protocol.MPTCP and (reason := why_unavailable(algorithm=CUBIC, mptcp=True)):
        pytest.skip(reason)
    wanted = parameters(protocol, direction=direction, streams=4)
    async with served() as server:
        report = await server.run(wanted)
    for half in (range(4), range(4, wanted.count)):
        ends = [report.totals(number) for number in half]
        for end in zip(*ends, strict=True):
            assert sum(total.size_bytes for total in end if total) == (wanted.size_bytes if half else 0)
    for number in range(wanted.count):
        sent, received = report.totals(number)
        assert sent is not None
        assert received is not None
        assert sent.size_bytes == received.size_bytes
        assert report.own.totals[number].sends is wanted.client_sends(number)


async def test_a_test_of_some_time_has_its_intervals_and_what_is_omitted_does_not_count() -> None:
    seen = Seen()
    async with served() as server:
        report = await server.run(
            parameters(seconds=0.3, size_bytes=0, omit_s=0.2, block_bytes=1000), interval_s=0.1, seen=seen
        )
    omitted = [interval for interval in seen.intervals if interval.omitted]
    counted = [interval for interval in seen.intervals if not interval.omitted]
    assert omitted[-1].end_s >= 0.2
    assert counted[0].start_s == 0.0
    assert all(after.start_s == before.end_s for before, after in pairwise(counted))
    sent, received = report.totals(0)
    assert sent is not None
    assert received is not None
    assert sum(interval.streams[0].size_bytes for interval in counted) == sent.size_bytes
    assert sent.seconds == counted[-1].end_s >= 0.3


@pytest.mark.parametrize("protocol", SRD_AND_TCP)
async def test_bitrate_is_a_limit(protocol: Protocol) -> None:
    wanted = parameters(protocol, seconds=0.5, size_bytes=0, rate_bps=8_000_000, block_bytes=5_000)
    async with served() as server:
        sent, _ = (await server.run(wanted)).totals(0)
    assert sent is not None
    assert sent.size_bytes <= 1e6 * (sent.seconds + 0.1) + 10_000  # what is saved up, and a block at each end


async def test_second_test_is_refused_while_one_runs_and_served_after_it() -> None:
    seen = Seen()
    async with served() as server:
        running = asyncio.ensure_future(server.run(parameters(seconds=600.0, size_bytes=0), seen=seen))
        async with asyncio.timeout(PATIENCE_S):
            await seen.began.wait()
            with pytest.raises(PerfError, match="the server is busy running a test"):
                await server.run(parameters())
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await until_free(server)


async def until_free(server: Served) -> None:
    """Run a test as soon as the server has noticed that the client of the last one is gone."""
    while True:
        try:
            await server.run(parameters())
        except PerfError as error:
            assert "busy" in str(error)  # noqa: PT017 - any number of times
            await asyncio.sleep(0.01)
        else:
            return


@pytest.mark.parametrize("protocol", SRD_AND_TCP)
@pytest.mark.parametrize("direction", [Direction.FORWARD, Direction.REVERSE])
async def test_a_wrong_byte_is_found(protocol: Protocol, direction: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    class Damaged(PayloadSource):
        def __init__(self, block_bytes: int) -> None:
            super().__init__(block_bytes)
            self.array[12_345] ^= 1

    monkeypatch.setattr("srd.perf.client.PayloadSource", Damaged)
    async with served() as server:
        with pytest.raises(PerfError, match=r"stream 1: byte 12345 .*is not what was sent"):
            await server.run(parameters(protocol, direction=direction))
        monkeypatch.undo()
        await until_free(server)


async def test_less_than_was_sent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def claims_a_byte_more(self: RunningStreams) -> list[int]:
        return [size_bytes + 1 for size_bytes in await stop(self)]

    stop = RunningStreams.stop
    monkeypatch.setattr(RunningStreams, "stop", claims_a_byte_more)
    monkeypatch.setattr("srd.perf.running.STALL_S", 0.1)
    async with served() as server:
        with pytest.raises(PerfError, match=r"stream 1: 3145730 bytes were sent, and 3145729 have arrived"):
            await server.run(parameters())


async def test_server_output_is_the_servers_text_or_its_document() -> None:
    for as_json in (False, True):
        async with served(as_json=as_json) as server:
            report = await server.run(parameters(server_output=True))
        assert report.other is not None
        output = report.other.output
        if as_json:
            assert output == json.loads("".join(server.output))
        else:
            assert output == "".join(server.output)
            assert "Accepted connection from 127.0.0.1" in output
            assert output.count("receiver") == 1


async def test_one_off_ends_after_a_test() -> None:
    async with served(one_off=True) as server:
        await server.run(parameters())
        async with asyncio.timeout(PATIENCE_S):
            assert await server.serving == 0


GARBAGE = {
    "no JSON": b"\0\0\0\x03[1,",
    "deep JSON": (1 << 16).to_bytes(4) + b"[" * (1 << 16),
    "a length that never comes": b"\xff\xff\xff\xff",
    "an unknown kind": encode(ControlKind.TEST).replace(b"test", b"tost"),
    "a kind of the server's": encode(ControlKind.START),
    "no parameters": encode(ControlKind.TEST, version=VERSION),
    "another version": encode(ControlKind.TEST, version=VERSION + 1, parameters=encode_parameters(parameters())),
    "a million streams": encode(
        ControlKind.TEST, version=VERSION, parameters={**encode_parameters(parameters()), "streams": 10**6}
    ),
    "a stream of no test": encode(ControlKind.JOIN, cookie="a" * 36, stream=0),
    "a cookie that is no text": encode(ControlKind.JOIN, cookie=7, stream=0),
    "a cookie of half a character": encode(ControlKind.JOIN, cookie="\ud800" * 36, stream=0),
    "a cookie that is no ASCII": encode(ControlKind.JOIN, cookie="é" * 36, stream=0),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
async def test_what_is_no_request_ends_its_peer_and_nothing_else(garbage: bytes) -> None:
    async with served() as server, await Endpoint.open(towards=HOST, config=PLAIN) as endpoint:
        peer = await endpoint.connect(HOST, server.port)
        reader, writer = await peer.open_stream()
        writer.write(garbage)
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionResetError):
                await reader.read(4096)  # a reason, perhaps
            writer.close()
            await peer.wait_ended()
            await server.run(parameters())


async def test_garbage_in_a_test_ends_it_and_nothing_else() -> None:
    async with served() as server, await Endpoint.open(towards=HOST, config=PLAIN) as endpoint:
        async with asyncio.timeout(PATIENCE_S):
            peer = await endpoint.connect(HOST, server.port)
            reader, writer = await peer.open_stream()
            control = Control(reader, writer)
            await control.send(
                ControlKind.TEST, version=VERSION, parameters=encode_parameters(parameters(seconds=9.0, size_bytes=0))
            )
            _, ready = await control.receive(ControlKind.READY)
            for cookie, stream in (("0" * 36, 0), (ready["cookie"], 1), (ready["cookie"], -1), (ready["cookie"], True)):
                intruder = await endpoint.connect(HOST, server.port)
                join = Control(*await intruder.open_stream())
                await join.send(ControlKind.JOIN, cookie=cookie, stream=stream)
                await intruder.wait_ended()
            data = await endpoint.connect(HOST, server.port)
            join = Control(*await data.open_stream())
            await join.send(ControlKind.JOIN, cookie=ready["cookie"], stream=0)
            await control.receive(ControlKind.START)
            await data.send(b"not what the pattern says", immediate=7)
            with pytest.raises(PerfError, match="is not what was sent"):
                await control.receive(ControlKind.RESULTS)
            writer.close()
            await until_free(server)


@pytest.mark.root  # TCP: a kernel may allow only root to choose cubic
async def test_a_connection_without_the_cookie_is_closed() -> None:
    async with served() as server, await Endpoint.open(towards=HOST, config=PLAIN) as endpoint:
        async with asyncio.timeout(PATIENCE_S):
            peer = await endpoint.connect(HOST, server.port)
            reader, writer = await peer.open_stream()
            control = Control(reader, writer)
            await control.send(
                ControlKind.TEST, version=VERSION, parameters=encode_parameters(parameters(Protocol.TCP))
            )
            await control.receive(ControlKind.READY)
            for greeting in (bytes(38), b""):
                incoming, outgoing = await asyncio.open_connection(HOST, server.port)
                outgoing.write(greeting)
                outgoing.write_eof()
                assert await incoming.read() == b""
                outgoing.close()
            writer.close()
            await peer.close()
            await until_free(server)
            with pytest.raises(ConnectionRefusedError):  # the listener is open only during a test
                await asyncio.open_connection(HOST, server.port)
