"""nitro_emu.card.control with tenants, strangers and TCP: real sockets, the credentials made up where needed."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import nitro_emu.card.control
from nitro_emu.card.control import MAX_CLIENTS, MAX_TCP_CLIENTS, CardControlServer
from nitro_emu.card.control_gate import Caller
from nitro_emu.errors import CardError
from nitro_emu.log_ring import LogRing
from nitro_emu.trust.alarms import Alarms
from nitro_emu.trust.audit_log import AuditLog
from nitro_emu.trust.policy import Call, Principal
from tests.nitro_emu.fake_card import FakeCard, config_in
from tests.patience import PATIENCE_S

TENANT, STRANGER = 70_001, 70_002
HOST = "127.0.0.1"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Served:
    """A server of a fake card, for root and one tenant."""

    def __init__(self, directory: Path, *, audit: AuditLog) -> None:
        self.directory = directory
        self.card = FakeCard(config_in(directory))
        self.alarms = Alarms()
        self.audit = audit
        self.writers: list[asyncio.StreamWriter] = []
        self.server = CardControlServer(
            self.card, log=LogRing(), audit=audit, vf_uids=frozenset({TENANT}), alarms=self.alarms, image="ab" * 48
        )

    async def local(self) -> Streams:
        return self._kept(await asyncio.open_unix_connection(str(self.directory / "control.sock")))

    async def remote(self, port: int, *, to: str = HOST, local: str | None = None) -> Streams:
        return self._kept(await asyncio.open_connection(to, port, local_addr=local and (local, 0)))

    def _kept(self, streams: Streams) -> Streams:
        self.writers.append(streams[1])
        return streams

    async def close(self) -> None:
        for writer in self.writers:
            writer.close()
        await self.server.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self.writers), return_exceptions=True)


async def told(streams: Streams, request: object) -> dict[str, Any]:
    """Send a request; return the reply, or {} when the connection has ended."""
    reader, writer = streams
    writer.write(json.dumps(request).encode() + b"\n")
    async with asyncio.timeout(PATIENCE_S):
        line = await reader.readline()
    reply: dict[str, Any] = json.loads(line) if line else {}
    return reply


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Served]:
    with AuditLog(directory / "audit.log") as audit:
        served = Served(directory, audit=audit)
        await served.server.start()
        try:
            yield served
        finally:
            await served.close()


def as_user(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    """Let the next clients be another user's."""
    monkeypatch.setattr(nitro_emu.card.control, "peer_credentials", lambda _client: (17, uid))


def records(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "audit.log").read_text(encoding="utf-8").splitlines()]


async def test_socket_is_open_to_all_users_only_if_there_are_tenants(tmp_path: Path) -> None:
    async with serving(tmp_path):
        assert stat.S_IMODE((tmp_path / "control.sock").stat().st_mode) == 0o666


async def test_credentials_are_the_kernels(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert "ok" in await told(await served.local(), {"command": "status"})
    (record,) = records(tmp_path)
    assert (record["uid"], record["pid"], record["call"]) == (os.geteuid(), os.getpid(), "status")


async def test_tenant_gets_a_document_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, TENANT)
    async with serving(tmp_path) as served:
        streams = await served.local()
        assert "ok" in await told(streams, {"command": "attest", "nonce": "00"})
        for call in set(Call) - {Call.ATTEST}:
            reply = await told(streams, {"command": call})
            assert reply == {
                "error": f"uid {TENANT} may not ask for {call}, only for attest; ask as root, or as the card's user"
            }
        assert served.alarms.counts == {"control": len(Call) - 1}
    assert {record["outcome"] for record in records(tmp_path)} == {"ok", "refused"}


async def test_stranger_is_told_so_once_recorded_and_alarmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, STRANGER)
    async with serving(tmp_path) as served:
        for _ in range(5):
            reply = await told(await served.local(), {"command": "attest"})
            assert reply == {"error": f"uid {STRANGER} may not control this card; ask as root, or as its user"}
        assert served.alarms.counts == {"control": 5}
        assert not served.card.attested
    first, rest = records(tmp_path)
    assert (first["call"], first["uid"], first["outcome"], rest["count"]) == ("connect", STRANGER, "refused", 4)


async def test_tenant_keeps_no_administrator_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as served:
        with monkeypatch.context() as patched:
            as_user(patched, TENANT)
            most = MAX_CLIENTS[Principal.TENANT]
            for _ in range(most):
                assert "ok" in await told(await served.local(), {"command": "attest"})
            reply = await told(await served.local(), {"command": "attest"})
            assert reply == {"error": f"{most} clients are connected, which is the limit; try again"}
        assert "ok" in await told(await served.local(), {"command": "status"})


async def test_idle_tenant_is_sent_away_and_root_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nitro_emu.card.control, "IDLE_TIMEOUT_S", 0.01)
    async with serving(tmp_path) as served:
        root = await served.local()
        assert "ok" in await told(root, {"command": "status"})
        as_user(monkeypatch, TENANT)
        async with asyncio.timeout(PATIENCE_S):
            assert await (await served.local())[0].read() == b""
        assert "ok" in await told(root, {"command": "status"})


async def test_mapping_over_tcp(tmp_path: Path) -> None:
    document = bytes(range(256)) * 4096  # 1 MiB
    async with serving(tmp_path) as served:
        port = await served.server.serve_tcp((HOST, 0))
        streams = await served.remote(port)
        reply = await told(streams, {"command": "map", "document": base64.b64encode(document).decode()})
        assert reply == {"ok": {"version": 1}}
        assert served.card.maps == [document]
        reply = await told(streams, {"command": "map", "document": base64.b64encode(b"forged").decode()})
        assert reply == {"error": "the signature does not hold"}
        for call in set(Call) - {Call.MAP}:
            reply = await told(streams, {"command": call})
            assert f"{HOST} (TCP) may not ask for {call}, only for map" in reply["error"]
        assert served.card.maps == [document]
    assert {record["principal"] for record in records(tmp_path)} == {f"control-plane@{HOST}"}
    assert {record["uid"] for record in records(tmp_path)} == {None}


MAP = {"command": "map", "document": base64.b64encode(b"mapping").decode()}


async def ended(streams: Streams) -> bool:
    """Wait for the end of a connection on which nothing was said."""
    async with asyncio.timeout(PATIENCE_S):
        with suppress(ConnectionResetError):
            return await streams[0].read() == b""
    return True


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine may take any time between two steps of a test."""
    monkeypatch.setattr(nitro_emu.card.control, "FIRST_MAP_TIMEOUT_S", 100 * PATIENCE_S)
    monkeypatch.setattr(nitro_emu.card.control, "IDLE_TIMEOUT_S", 100 * PATIENCE_S)


async def strangers(served: Served, port: int, count: int, *, first: int = 0) -> list[Streams]:
    """Connect from many addresses, two times from each."""
    return [
        await served.remote(port, local=f"127.0.{1 + number // 400}.{1 + number // 2 % 200}")
        for number in range(first, first + count)
    ]


@pytest.mark.usefixtures("patient")
async def test_strangers_that_are_connected_keep_no_control_plane_out(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        port = await served.server.serve_tcp((HOST, 0))
        there = await strangers(served, port, MAX_TCP_CLIENTS)
        for each in there:  # that they have been answered shows that they are taken
            assert "may not ask for status" in (await told(each, {"command": "status"}))["error"]
        assert "ok" in await told(await served.remote(port), MAP)
        assert await ended(there[0])  # the one that has been idle longest
        assert served.alarms.counts["control"] == MAX_TCP_CLIENTS + 1
        assert "may not ask for status" in (await told(there[1], {"command": "status"}))["error"]
        assert "ok" in await told(await served.local(), {"command": "status"})


@pytest.mark.usefixtures("patient")
async def test_strangers_that_connect_on_and_on_end_each_other_and_not_the_control_plane(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        port = await served.server.serve_tcp((HOST, 0))
        control_plane = await served.remote(port)
        assert "ok" in await told(control_plane, MAP)
        there = await strangers(served, port, 4 * MAX_TCP_CLIENTS)
        for each in there[: 3 * MAX_TCP_CLIENTS + 1]:
            assert await ended(each)
        assert "ok" in await told(control_plane, MAP)
        next_push = await served.remote(port)
        await asyncio.gather(strangers(served, port, 2 * MAX_TCP_CLIENTS, first=100), told(next_push, MAP))
        assert "ok" in await told(next_push, MAP)
        assert served.card.maps == [b"mapping"] * 4


@pytest.mark.usefixtures("patient")
async def test_host_that_has_its_clients_ends_nobody_elses(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        port = await served.server.serve_tcp((HOST, 0))
        there = await strangers(served, port, MAX_TCP_CLIENTS)
        for _ in range(2 * MAX_TCP_CLIENTS):
            reply = await told(await served.remote(port, local="127.0.1.1"), MAP)
            assert reply == {"error": "2 clients are connected, which is the limit; try again"}
        for each in there:
            assert "may not ask for status" in (await told(each, {"command": "status"}))["error"]


@pytest.mark.usefixtures("patient")
async def test_host_has_little_time_for_its_map_and_then_may_be_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        port = await served.server.serve_tcp((HOST, 0))
        control_plane = await served.remote(port)
        assert "ok" in await told(control_plane, MAP)
        monkeypatch.setattr(nitro_emu.card.control, "FIRST_MAP_TIMEOUT_S", 0.1)
        assert await ended(await served.remote(port, local="127.0.1.1"))
        talker = await served.remote(port, local="127.0.1.2")
        with suppress(ConnectionError):
            while reply := await told(talker, {"command": "status"}):  # what is refused wins no time
                assert "error" in reply
        assert "ok" in await told(control_plane, MAP)


@pytest.mark.usefixtures("patient")
async def test_connections_that_end_before_they_are_served_are_closed(tmp_path: Path) -> None:
    """A task that is cancelled before it has begun closes nothing itself."""
    async with serving(tmp_path) as served:
        kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
        pairs = [socket.socketpair(type=kind) for _ in range(2 * MAX_TCP_CLIENTS)]
        for number, (_, ours) in enumerate(pairs):
            served.server._take(ours, caller=Caller(principal=Principal.CONTROL_PLANE, host=f"10.0.0.{number}"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert [ours.fileno() for _, ours in pairs[:MAX_TCP_CLIENTS]] == [-1] * MAX_TCP_CLIENTS
        for theirs, _ in pairs:
            theirs.close()


async def test_mapping_over_ipv6(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        try:
            port = await served.server.serve_tcp(("::1", 0))
        except CardError as error:
            pytest.skip(str(error))
        streams = await served.remote(port, to="::1")
        assert "may not ask for status" in (await told(streams, {"command": "status"}))["error"]
    assert records(tmp_path)[0]["principal"] == "control-plane@::1"
