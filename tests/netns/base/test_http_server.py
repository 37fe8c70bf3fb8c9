"""netns.base.http_server: what it answers, and what hostile clients cannot do to it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.base import http_server as module
from netns.base.http_server import MAX_CLIENTS, MAX_REQUEST_BYTES, HttpServer, parse_untrusted
from tests.patience import PATIENCE_S, until

HOST = "127.0.0.1"


class ListenError(Exception):
    """Of who listens."""


async def hello(accept: str) -> tuple[str, bytes]:
    return "text/x-test", b"hello " + accept.encode()


@asynccontextmanager
async def served() -> AsyncIterator[HttpServer]:
    server = await HttpServer.listen((HOST, 0), routes={"/hello": hello}, option="--metrics", error=ListenError)
    try:
        yield server
    finally:
        await server.close()


async def exchange(server: HttpServer, request: bytes) -> bytes:
    """Send a request; return everything to the end of the connection."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(*server.address)
        with suppress(ConnectionError):  # it may be closed before all is sent
            writer.write(request)
            await writer.drain()
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        (b"GET /hello HTTP/1.1\r\nHost: x\r\naccept:  a/b \r\n\r\n", b"200 OK", b"hello a/b"),
        (b"GET /hello?x=1 HTTP/1.0\r\n\r\n", b"200 OK", b"hello "),
        (b"HEAD /hello HTTP/1.1\r\n\r\n", b"200 OK", b""),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found", b"there is /hello\n"),
        (b"POST /hello HTTP/1.1\r\n\r\n", b"405 Method Not Allowed", b""),
        (b"GET hello HTTP/1.1\r\n\r\n", b"400 Bad Request", b""),
        (b"GET /hello HTTP/2\r\n\r\n", b"400 Bad Request", b""),
        (b"\r\n\r\n", b"400 Bad Request", b""),
        (b"\xff\x00\x1e\r\n\r\n", b"400 Bad Request", b""),
        (b"GET /" + b"x" * MAX_REQUEST_BYTES * 3, b"431 Request Header Fields Too Large", b""),
    ],
)
async def test_answer(request_: bytes, status: bytes, body: bytes) -> None:
    async with served() as server:
        answer = await exchange(server, request_)
        if status.startswith(b"431") and not answer:
            return  # the kernel resets a connection of which not all was read
        head, _, content = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status + b"\r\n")
        assert content == body
        assert b"\r\nConnection: close" in head
        if body:
            assert b"\r\nContent-Length: %d\r\n" % len(body) in head


async def test_a_client_that_sends_nothing_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.05)
    async with served() as server:
        assert await exchange(server, b"GET /hel") == b""
        assert b"hello" in await exchange(server, b"GET /hello HTTP/1.1\r\n\r\n")


async def test_a_client_that_leaves_does_no_harm() -> None:
    async with served() as server:
        for request in (b"", b"GET /hello HTTP/1.1\r\n\r\n"):
            with socket.create_connection(server.address) as client:
                client.sendall(request)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # a reset
        assert b"hello" in await exchange(server, b"GET /hello HTTP/1.1\r\n\r\n")


async def test_clients_are_limited() -> None:
    async with served() as server:
        held = [await asyncio.open_connection(*server.address) for _ in range(MAX_CLIENTS)]
        await until(lambda: len(server._clients._tasks) == MAX_CLIENTS)
        assert await exchange(server, b"GET /hello HTTP/1.1\r\n\r\n") == b""
        for _, writer in held:
            writer.close()
        await until(lambda: not server._clients._tasks)
        assert b"hello" in await exchange(server, b"GET /hello HTTP/1.1\r\n\r\n")


async def test_close__ends_connections_and_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with served() as server:
        reader, writer = await asyncio.open_connection(*server.address)
        await until(lambda: server._clients._tasks)
    assert asyncio.all_tasks() <= before
    async with asyncio.timeout(PATIENCE_S):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", ""])
async def test_listen__hosts(host: str) -> None:
    server = await HttpServer.listen((host, 0), routes={"/hello": hello}, option="--metrics", error=ListenError)
    assert server.address[1]
    await server.close()


@pytest.mark.parametrize(("host", "reason"), [("192.0.2.1", "cannot listen"), ("nowhere.invalid", "cannot listen")])
async def test_listen__elsewhere_bad_flow(host: str, reason: str) -> None:
    with pytest.raises(ListenError, match=f"^--metrics {host}:9400: {reason} .*; choose another$") as caught:
        await HttpServer.listen((host, 9400), routes={}, option="--metrics", error=ListenError)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=300) | st.from_regex(rb"[A-Z]+ /[ -~]* HTTP/1\.[01]\r\n(Accept: [ -~]*\r\n)*\r\n"))
def test_parse__any_bytes(request_: bytes) -> None:
    try:
        method, path, accept = parse_untrusted(request_)
    except ValueError:
        return
    assert " " not in method
    assert path.startswith("/")
    assert "?" not in path
    assert "\r\n" not in accept


async def test_what_a_handler_raises_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_accept: str) -> tuple[str, bytes]:
        raise ZeroDivisionError("why")

    server = await HttpServer.listen((HOST, 0), routes={"/x": broken}, option="--metrics", error=ListenError)
    try:
        assert (await exchange(server, b"GET /x HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 500 ")
    finally:
        await server.close()
    assert [record.message for record in caplog.records] == ["/x: cannot be answered"]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_server_asks_for_no_name(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **_named: object) -> None:
        pytest.fail("a query leaves the host")

    for name in ("getfqdn", "gethostbyaddr", "gethostbyname", "getnameinfo", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    server = await HttpServer.listen((host, 0), routes={"/hello": hello}, option="--metrics", error=ListenError)
    try:
        assert b"hello" in await exchange(server, b"GET /hello HTTP/1.1\r\n\r\n")
    finally:
        await server.close()
