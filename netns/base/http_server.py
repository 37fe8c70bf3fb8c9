"""As much of HTTP/1.1 as a scraper needs: GET of a few paths, one request for each connection.

Rules.
1. What a client sends is limited in size (`MAX_REQUEST_BYTES`) and time (`TIMEOUT_S`, for reading the request, making
   the answer and sending it). Clients beyond `MAX_CLIENTS` are turned away. So nobody can use up memory or descriptors.
2. Whatever a client does ends its own connection only. What a handler raises is logged, and answered with 500.
3. It is neither encrypted nor authenticated, and asks for no names of addresses: a query would leave the host.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, Self

from netns.base.addresses import host_port_text
from netns.base.tasks import Tasks

MAX_REQUEST_BYTES: Final = 8 << 10
MAX_CLIENTS: Final = 16
TIMEOUT_S: Final = 10.0
"""Prometheus' own `scrape_timeout`."""

_log: Final = logging.getLogger(__name__)

Handler = Callable[[str], Awaitable[tuple[str, bytes]]]
"""Returns content type and body for a client's Accept header."""


class HttpServer:
    """Serves `routes`, by path, until it is closed."""

    def __init__(self, server: asyncio.Server, clients: Clients) -> None:
        self._server = server
        self._clients = clients
        host, port = server.sockets[0].getsockname()[:2]
        self.address: tuple[str, int] = (host, port)

    @classmethod
    async def listen(
        cls, address: tuple[str, int], *, routes: Mapping[str, Handler], option: str, error: type[Exception]
    ) -> Self:
        """Listen. Raises `error`, which names the option that said where."""
        clients = Clients(routes)
        host, port = address
        try:
            server = await asyncio.start_server(clients.serve, host or None, port, limit=MAX_REQUEST_BYTES)
        except (OSError, UnicodeError) as failure:
            why = (failure.strerror if isinstance(failure, OSError) else None) or "no such address"
            raise error(f"{option} {host_port_text(host, port)}: cannot listen ({why}); choose another") from failure
        return cls(server, clients)

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        self._server.close()
        await self._clients.close()


class Clients:
    """The connections of a server."""

    def __init__(self, routes: Mapping[str, Handler]) -> None:
        self._routes = routes
        self._tasks = Tasks()

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client, unless there are too many."""
        if len(self._tasks) >= MAX_CLIENTS:
            writer.transport.abort()
            return
        self._tasks.start(self._serve(reader, writer))

    async def close(self) -> None:
        """End all connections."""
        await self._tasks.end()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(TIMEOUT_S):
                    writer.write(await self._answer(reader))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            writer.transport.abort()  # no-op when it is closed

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response("431 Request Header Fields Too Large")
        try:
            method, path, accept = parse_untrusted(request)
        except ValueError:
            return _response("400 Bad Request")
        if method not in {"GET", "HEAD"}:
            return _response("405 Method Not Allowed", headers="Allow: GET, HEAD\r\n")
        if (handler := self._routes.get(path)) is None:
            return _response("404 Not Found", body=f"there is {' and '.join(self._routes)}\n".encode())
        try:
            content_type, body = await handler(accept)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are served
            _log.warning("%s: cannot be answered", path, exc_info=error)
            return _response("500 Internal Server Error")
        answer = _response("200 OK", body=body, content_type=content_type)
        return answer if method == "GET" else answer[: len(answer) - len(body)]


def parse_untrusted(request: bytes) -> tuple[str, str, str]:
    """Return a request's method, its path without a query, and its Accept header. Raises ValueError."""
    line, *headers = request.decode("latin-1").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise ValueError("is no request of HTTP/1")
    accepted = [
        value.strip() for name, _, value in (each.partition(":") for each in headers) if name.lower() == "accept"
    ]
    return words[0], words[1].partition("?")[0], ",".join(accepted)


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header asks for OpenMetrics, and not for Prometheus' older text."""
    return "application/openmetrics-text" in accept


def _response(status: str, *, body: bytes = b"", content_type: str = "text/plain", headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{headers}"
    return f"{head}Connection: close\r\n\r\n".encode() + body
