"""nitro_emu.card.control: real sockets, honest clients and others."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nitro_emu.card.control
from nitro_emu.card.card import Card
from nitro_emu.card.control import (
    MAX_CLIENTS,
    CardControlServer,
    ControlClient,
    ask,
)
from nitro_emu.card.control_gate import MAX_MAP_BYTES, Caller
from nitro_emu.errors import CardError
from nitro_emu.log_ring import LogRecord, LogRing
from nitro_emu.trust.policy import Principal
from tests.nitro_emu.fake_card import BrokenCard, FakeCard, config_in
from tests.patience import PATIENCE_S

IMAGE = "ab" * 48


class WatchedRing(LogRing):
    """A ring that tells when somebody waits for a record."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = asyncio.Event()

    async def newer(self, number: int, *, timeout_s: float) -> list[LogRecord]:
        self.waiting.set()
        return await super().newer(number, timeout_s=timeout_s)


@asynccontextmanager
async def serving(run_dir: Path, *, card: Card | None = None, log: LogRing | None = None) -> AsyncIterator[Path]:
    server = CardControlServer(card or FakeCard(config_in(run_dir)), log=log or LogRing(), image=IMAGE)
    await server.start()
    try:
        yield run_dir
    finally:
        await server.close()


async def asked(run_dir: Path, command: str, **arguments: object) -> dict[str, Any]:
    return await asyncio.to_thread(ask, run_dir, command, **arguments)


async def replies(run_dir: Path, sent: bytes) -> list[dict[str, Any]]:
    """What the server replies to these bytes, to the end of the connection."""
    reader, writer = await asyncio.open_unix_connection(str(run_dir / "control.sock"))
    try:
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_S):
            return [json.loads(line) for line in (await reader.read()).splitlines()]
    finally:
        writer.close()


async def test_status_and_stats_are_the_cards(tmp_path: Path) -> None:
    card = FakeCard(config_in(tmp_path))
    card.ports["efa_0"].tx_bytes = 7
    async with serving(tmp_path, card=card):
        assert await asked(tmp_path, "status") == card.status()
        assert await asked(tmp_path, "stats") == card.stats()


async def test_attest_says_that_nothing_is_signed(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    async with serving(tmp_path, card=FakeCard(config)):
        assert await asked(tmp_path, "attest", nonce="00ff") == {
            "signed": False,
            "reason": "this card has no security chip",
            "measurements": {"image": IMAGE, "configuration": config.sha384},
            "nonce": "00ff",
        }
        assert (await asked(tmp_path, "attest"))["nonce"] is None


async def test_socket_is_for_its_user_alone_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    async with serving(tmp_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"\n", "not JSON"),
        (b"{\n", "not JSON"),
        (b"\xff\n", "not JSON"),
        (b"[" * 60_000 + b"\n", "not JSON"),
        (b"3\n", "a request is a JSON object"),
        (b"{}\n", "no command None; there are attest, audit, logs, map, stats, status, update"),
        (b'{"command": []}\n', "no command []"),
        (b'{"command": "' + b"x" * 60_000 + b'"}\n', "no command 'xxx"),
        (b'{"command": "attest", "nonce": "\\u00b2\\u00b2"}\n', "is not up to 1024 bytes in hexadecimal"),
        (b'{"command": "logs", "after": "1"}\n', "after: '1' is no number"),
        (b'{"command": "logs", "after": true}\n', "after: True is no number"),
        (b'{"command": "logs", "wait_s": NaN}\n', "wait_s: nan is not between"),
        (b'{"command": "logs", "wait_s": 1e9}\n', "is not between 0 and 10.0"),
    ],
)
async def test_malformed_requests_are_answered_and_the_connection_goes_on(
    tmp_path: Path, line: bytes, error: str
) -> None:
    async with serving(tmp_path):
        refused, served = await replies(tmp_path, line + b'{"command": "status"}\n')
    assert error in refused["error"]
    assert len(refused["error"]) < 500
    assert served["ok"]["name"] == "card"


async def test_line_without_end_closes_the_connection(tmp_path: Path) -> None:
    async with serving(tmp_path):
        (reply,) = await replies(tmp_path, b"x" * (MAX_MAP_BYTES + 1))
        assert "at most 65536 bytes, or 2097152 for a map" in reply["error"]
        assert await replies(tmp_path, b'{"command": "status"}') == []  # cut off, so not a request
        assert await asked(tmp_path, "status")


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(st.binary(max_size=64) | st.sampled_from([b"\n", b'{"command": ', b'"stats"', b"}"])))
async def test_anything_leaves_the_server_serving(tmp_path: Path, sent: list[bytes]) -> None:
    async with serving(tmp_path):
        assert all(len(reply) == 1 for reply in await replies(tmp_path, b"".join(sent)))
        assert await asked(tmp_path, "status")


async def test_error_in_the_card_is_answered_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path, card=BrokenCard(config_in(tmp_path))):
        with pytest.raises(CardError, match="internal error: ZeroDivisionError: in status"):
            await asked(tmp_path, "status")
    assert "internal error" in caplog.text


async def test_too_many_clients_are_told_so(tmp_path: Path) -> None:
    async with serving(tmp_path):
        clients = [await asyncio.to_thread(ControlClient, tmp_path) for _ in range(MAX_CLIENTS[Principal.ROOT])]
        for client in clients:
            await asyncio.to_thread(client.ask, "status")
        with pytest.raises(CardError, match="32 clients are connected"):
            await asked(tmp_path, "status")
        for client in clients:
            client.close()


async def test_logs_after_a_number(tmp_path: Path) -> None:
    log = LogRing()
    for number in range(3):
        log.handle(logging.makeLogRecord({"msg": f"record {number}", "name": "nitro", "levelname": "INFO"}))
    async with serving(tmp_path, log=log):
        records = (await asked(tmp_path, "logs", after=1))["records"]
    assert [(record["number"], record["message"]) for record in records] == [(2, "record 1"), (3, "record 2")]


async def test_logs_wait_for_a_record(tmp_path: Path) -> None:
    log = WatchedRing()
    async with serving(tmp_path, log=log):
        asking = asyncio.create_task(asked(tmp_path, "logs", wait_s=10))
        await log.waiting.wait()
        log.handle(logging.makeLogRecord({"msg": "news"}))
        assert [record["message"] for record in (await asking)["records"]] == ["news"]


async def test_close_ends_clients_that_wait(tmp_path: Path) -> None:
    log = WatchedRing()
    async with serving(tmp_path, log=log):
        asking = asyncio.create_task(asked(tmp_path, "logs", wait_s=10))
        await log.waiting.wait()
    with pytest.raises(CardError, match="the card has ended"):
        await asking


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", "the card has ended"),
        (b"hello\n", "what answers there is no card"),
        (b'{"ok": 1}\n', "what answers there is no card"),
        (b'{"error": "why"}\n', "why"),
    ],
)
async def test_ask_something_that_is_no_card(tmp_path: Path, reply: bytes, error: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(reply)
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "control.sock"):
        with pytest.raises(CardError, match=error):
            await asked(tmp_path, "status")


async def test_client_that_leaves_early(tmp_path: Path) -> None:
    async with serving(tmp_path):
        for _ in range(10):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / "control.sock"))
                client.sendall(b'{"command": "stats"}\n' * 100)
        assert await asked(tmp_path, "status")


async def test_client_that_leaves_before_it_is_told_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(nitro_emu.card.control, "_send", gone)
    server = CardControlServer(FakeCard(config_in(tmp_path)), log=LogRing(), image=IMAGE)
    theirs, ours = socket.socketpair(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with theirs:
        server._take(ours, caller=Caller(principal=Principal.ROOT, uid=0))
        (serving_it,) = server._clients
        with suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(theirs, b"x" * (MAX_MAP_BYTES + 1))
        await asyncio.wait_for(serving_it, PATIENCE_S)
