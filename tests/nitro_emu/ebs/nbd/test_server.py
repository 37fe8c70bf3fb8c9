"""The NBD server on real sockets: what clients use, and clients that break the protocol beside one that does not."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import DeviceError, VolumeError
from nitro_emu.ebs.front import Front
from nitro_emu.ebs.limits import Limits, Provisioned
from nitro_emu.ebs.nbd import server as server_module
from nitro_emu.ebs.nbd import session as session_module
from nitro_emu.ebs.nbd.server import NbdServer
from nitro_emu.ebs.nbd.wire import MAX_PAYLOAD_BYTES
from nitro_emu.ebs.request import BlockOperation
from tests.nitro_emu.ebs.model import CheckedDevice, disk_full
from tests.nitro_emu.ebs.nbd.client import (
    BLOCK_STATUS,
    DF,
    DISC,
    FLUSH,
    FUA,
    NO_HOLE,
    READ,
    REQ_ONE,
    TRIM,
    WRITE,
    WRITE_ZEROES,
    Answer,
    Client,
    text,
)
from tests.patience import until

SIZE = 1 << 20


@dataclass
class Stage:
    device: CheckedDevice
    front: Front
    server: NbdServer
    path: Path
    clients: list[Client] = field(default_factory=list)

    async def raw(self) -> Client:
        """A client that has sent nothing."""
        return self._kept(Client(*await asyncio.open_unix_connection(self.path)))

    async def connect(self, *, flags: int = 3) -> Client:
        return self._kept(await Client.connect(self.path, flags=flags))

    async def attached(self, *, structured: bool = True, name: bytes = b"vol-1") -> Client:
        return self._kept(await Client.attached(self.path, structured=structured, name=name))

    def _kept(self, client: Client) -> Client:
        self.clients.append(client)
        return client


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    device = CheckedDevice(SIZE)
    front = Front(device, limits=Limits(Provisioned()))
    async with NbdServer(front, name="vol-1") as server:
        await server.listen_unix(tmp_path / "vol.sock")
        made = Stage(device, front, server, tmp_path / "vol.sock")
        yield made
        device.gate.set()
        for client in made.clients:
            client.writer.transport.abort()


# -- what clients use -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structured", [True, False])
async def test_bytes_written_are_read(stage: Stage, structured: bool) -> None:  # noqa: FBT001
    client = await stage.attached(structured=structured)
    assert client.size_bytes == SIZE
    assert client.flags == 0x16D | (0x80 if structured else 0)
    data = os.urandom(100_000)
    assert await client.asks(WRITE, cookie=1, offset=1234, data=data) == Answer(1)
    read = await client.asks(READ, cookie=2, offset=1234, length=len(data), flags=DF, read_bytes=len(data))
    assert read == Answer(2, 0, struct.pack(">Q", 1234) + data if structured else data)
    assert await client.asks(FLUSH, cookie=3) == Answer(3)
    assert stage.device.flushes == 1
    assert await client.asks(WRITE, cookie=4, data=b"x", flags=FUA) == Answer(4)
    assert stage.device.calls[-1][0] == "write fua"
    client.send(DISC)
    assert await client.ended() == b""


async def test_block_status_tells_holes(stage: Stage) -> None:
    client = await stage.attached()
    await client.asks(WRITE, offset=2 * BLOCK_BYTES, data=b"x" * BLOCK_BYTES)
    await client.asks(WRITE_ZEROES, offset=3 * BLOCK_BYTES, length=BLOCK_BYTES, flags=NO_HOLE)
    await client.asks(WRITE_ZEROES, offset=4 * BLOCK_BYTES, length=BLOCK_BYTES)
    whole = await client.asks(BLOCK_STATUS, length=SIZE)
    expected = [(2 * BLOCK_BYTES, 3), (2 * BLOCK_BYTES, 0), (SIZE - 4 * BLOCK_BYTES, 3)]
    assert whole.payload == struct.pack(">I", 1) + b"".join(struct.pack(">II", *each) for each in expected)
    one = await client.asks(BLOCK_STATUS, offset=100, length=SIZE - 100, flags=REQ_ONE)
    assert one.payload == struct.pack(">III", 1, 2 * BLOCK_BYTES - 100, 3)
    assert await client.asks(TRIM, offset=0, length=SIZE) == Answer(7)
    assert (await client.asks(BLOCK_STATUS, length=SIZE)).payload == struct.pack(">III", 1, SIZE, 3)


async def test_clients_share_the_volume_and_requests_overtake(stage: Stage) -> None:
    one, other = await stage.attached(), await stage.attached(name=b"")
    stage.device.gate.clear()
    one.send(WRITE, cookie=1, data=b"late")
    assert (await one.asks(READ, cookie=2, offset=8192, length=4)).cookie == 2
    assert (await other.asks(READ, cookie=3, length=4)).payload[8:] == bytes(4)
    stage.device.gate.set()
    assert await one.answer() == Answer(1)
    assert (await other.asks(READ, cookie=4, length=4)).payload[8:] == b"late"


async def test_export_name_of_old_clients(stage: Stage) -> None:
    for flags, padding in ((3, 0), (1, 124)):
        client = await stage.connect(flags=flags)
        client.writer.write(b"IHAVEOPT" + struct.pack(">II", 1, 5) + b"vol-1")
        assert await client.reader.readexactly(10 + padding) == struct.pack(">QH", SIZE, 0x16D) + bytes(padding)
        assert (await client.asks(WRITE, cookie=5, data=b"old")) == Answer(5)


async def test_list_info_and_unknown_options(stage: Stage) -> None:
    client = await stage.connect()
    assert await client.option(3) == [(2, text(b"vol-1")), (1, b"")]
    ((kind, _),) = await client.option(6, text(b"other") + b"\0\0")
    assert kind == (1 << 31) + 6
    infos = await client.option(6, text(b"vol-1") + struct.pack(">HHH", 2, 1, 3))
    assert [info for kind, info in infos if kind == 3] == [
        struct.pack(">HQH", 0, SIZE, 0x16D),
        b"\0\1vol-1",
        struct.pack(">HIII", 3, 1, BLOCK_BYTES, MAX_PAYLOAD_BYTES),
    ]
    for unknown in (4, 5, 11, 99):  # PEEK_EXPORT, STARTTLS, EXTENDED_HEADERS
        assert await client.option(unknown) == [((1 << 31) + 1, b"")]
    assert await client.option(2) == [(1, b"")]
    assert await client.ended() == b""


async def test_over_tcp(stage: Stage) -> None:
    host, port = await stage.server.listen_tcp(("127.0.0.1", 0))
    reader, writer = await asyncio.open_connection(host, port)
    assert (await reader.readexactly(8)) == b"NBDMAGIC"
    writer.transport.abort()
    with pytest.raises(VolumeError, match=rf"--nbd 127.0.0.1:{port}: cannot listen"):
        await stage.server.listen_tcp((host, port))


async def test_a_path_where_somebody_listens_is_refused(stage: Stage) -> None:
    with pytest.raises(VolumeError, match="a process listens there"):
        await stage.server.listen_unix(stage.path)


# -- what fails -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structured", [True, False])
async def test_requests_that_fail_are_answered_and_the_connection_goes_on(stage: Stage, structured: bool) -> None:  # noqa: FBT001
    client = await stage.attached(structured=structured)
    beyond = {"offset": SIZE - 10}
    cases: list[tuple[int, dict[str, Any], int]] = [
        (READ, {**beyond, "length": 20}, errno.EINVAL),
        (READ, {"offset": (1 << 64) - 1, "length": 20}, errno.EINVAL),
        (READ, {"length": MAX_PAYLOAD_BYTES + 1}, errno.EINVAL),
        (READ, {"length": 1, "flags": 1 << 15}, errno.EINVAL),
        (WRITE, {**beyond, "data": b"x" * 20}, errno.ENOSPC),
        (WRITE_ZEROES, {**beyond, "length": 20}, errno.ENOSPC),
        (TRIM, {**beyond, "length": 20}, errno.EINVAL),
        (BLOCK_STATUS, {}, errno.EINVAL),
        (5, {}, errno.EINVAL),
        (99, {}, errno.EINVAL),
    ]
    for command, fields, error in cases:
        answer = await client.asks(command, **fields)
        assert (answer.cookie, answer.error) == (7, error)
    stage.device.error = disk_full()
    assert (await client.asks(WRITE, data=b"x")).error == errno.ENOSPC
    stage.device.error = DeviceError(errno.ESTALE, "another writer has the volume")
    assert (await client.asks(READ, length=4)).error == errno.EIO
    stage.device.error = None
    assert (await client.asks(READ, length=4, read_bytes=4)).error == 0


async def test_block_status_without_its_context_is_refused(stage: Stage) -> None:
    client = await stage.attached(structured=False)
    assert (await client.asks(BLOCK_STATUS, length=SIZE)).error == errno.EINVAL


async def test_what_fails_without_a_reason_is_an_error_of_its_request_only(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await stage.attached()

    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(stage.device, "flush", broken)
        assert (await client.asks(FLUSH)).error == errno.EIO
    assert (await client.asks(FLUSH)).error == 0


# -- clients that break the protocol ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", 0xFF),  # unknown flags
        struct.pack(">I", 3) + b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 3, 1 << 31),
        struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 5) + b"other",
        struct.pack(">I", 3) + (b"IHAVEOPT" + struct.pack(">II", 3, 0)) * 65,
        struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 0) + bytes(28),  # a request without its magic
        struct.pack(">I", 3)
        + b"IHAVEOPT"
        + struct.pack(">II", 1, 0)
        + struct.pack(">IHHQQI", 0x25609513, 0, 1, 0, 0, MAX_PAYLOAD_BYTES + 1),
    ],
)
async def test_a_hostile_client_ends_its_own_connection_only(stage: Stage, sent: bytes) -> None:
    neighbour = await stage.attached()
    hostile = await stage.raw()
    hostile.writer.write(sent)
    await hostile.ended()
    assert (await neighbour.asks(WRITE, data=b"fine")).error == 0
    await until(lambda: stage.server.clients == 1)


requests = st.builds(
    lambda command, flags, offset, length, rest: (
        struct.pack(">IHHQQI", 0x25609513, flags, command, 1, offset, length) + rest
    ),
    st.integers(0, 8),
    st.integers(0, 15),
    st.sampled_from([0, 1, SIZE - 1, SIZE, (1 << 64) - 1]),
    st.sampled_from([0, 1, 4096, SIZE, (1 << 32) - 1]),
    st.binary(max_size=64),
)


@given(
    is_negotiated=st.booleans(),
    parts=st.lists(st.one_of(st.binary(max_size=100), requests), max_size=5),
    aborts=st.booleans(),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_bytes_at_random_end_one_connection_only(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    is_negotiated: bool,  # noqa: FBT001
    parts: list[bytes],
    aborts: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(session_module, "LAST_ANSWERS_S", 0.0)  # for a stranger that reads nothing
    neighbour = await stage.attached()
    stranger = await (stage.attached() if is_negotiated else stage.connect())
    stranger.writer.write(b"".join(parts))
    if aborts:
        stranger.writer.transport.abort()
    else:
        stranger.writer.write_eof()
    assert (await neighbour.asks(FLUSH, cookie=9)) == Answer(9)
    stranger.close()
    neighbour.close()
    await until(lambda: stage.server.clients == 0)


async def test_a_client_that_negotiates_too_slowly_is_ended(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "NEGOTIATION_S", 0.0)
    assert await (await stage.raw()).ended() == b"NBDMAGICIHAVEOPT\0\3"
    await until(lambda: stage.server.clients == 0)


async def test_one_client_too_many_is_sent_away(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await stage.attached()
    monkeypatch.setattr(server_module, "MAX_CLIENTS", 1)
    assert await (await stage.raw()).ended() == b""
    assert (await client.asks(FLUSH)).error == 0


async def test_a_client_has_so_many_open_requests_and_the_next_waits(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "MAX_REQUESTS", 3)
    client = await stage.attached()
    stage.device.gate.clear()
    for cookie in range(5):
        client.send(WRITE, cookie=cookie, offset=cookie * BLOCK_BYTES, data=b"x" * BLOCK_BYTES)
    await until(lambda: stage.front.statistics.queue_length == 3)
    other = await stage.attached()
    assert (await other.asks(FLUSH)).error == 0
    assert stage.front.statistics.queue_length == 3
    stage.device.gate.set()
    assert {(await client.answer()).cookie for _ in range(5)} == set(range(5))


async def test_open_bytes_are_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_OPEN_BYTES", 3 * BLOCK_BYTES)
    client = await stage.attached()
    stage.device.gate.clear()
    for cookie in range(5):
        client.send(WRITE, cookie=cookie, offset=cookie * BLOCK_BYTES, data=b"x" * BLOCK_BYTES)
    await until(lambda: stage.front.statistics.queue_length == 3)
    await (await stage.attached()).asks(FLUSH)
    assert stage.front.statistics.queue_length == 3
    stage.device.gate.set()
    assert {(await client.answer()).cookie for _ in range(5)} == set(range(5))


# -- the end ----------------------------------------------------------------------------------------------------


async def test_a_write_whose_client_has_gone_is_carried_out(stage: Stage) -> None:
    client = await stage.attached()
    stage.device.gate.clear()
    client.send(WRITE, data=b"kept")
    await until(lambda: stage.front.statistics.queue_length == 1)
    client.writer.transport.abort()
    stage.device.gate.set()
    await until(lambda: stage.server.clients == 0)
    other = await stage.attached()
    assert (await other.asks(READ, length=4)).payload[8:] == b"kept"


async def test_closing_waits_for_the_requests_under_way_and_answers_them(stage: Stage) -> None:
    client = await stage.attached()
    stage.device.gate.clear()
    client.send(WRITE, cookie=1, data=b"kept")
    await until(lambda: stage.front.statistics.queue_length == 1)
    closing = asyncio.ensure_future(stage.server.close())
    await until(lambda: not stage.path.exists())
    client.send(WRITE, cookie=2, data=b"late")
    for _ in range(50):  # turns of the loop, in which a server that does not wait would end
        await asyncio.sleep(0)
    assert not closing.done()
    stage.device.gate.set()
    await closing
    assert await client.answer() == Answer(1)
    assert await client.ended() == b""


async def test_a_client_that_reads_no_answers_does_not_keep_a_server_from_closing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "LAST_ANSWERS_S", 0.0)
    client = await stage.attached()
    client.stop_reading()
    for cookie in range(20):
        client.send(READ, cookie=cookie, length=SIZE)
    await until(lambda: stage.front.statistics.by_command[BlockOperation.READ].operations == 20)
    await stage.server.close()
    assert stage.server.clients == 0
