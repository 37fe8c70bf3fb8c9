"""The port of a server."""

from __future__ import annotations

import socket

import pytest

from srd.perf import opening
from srd.perf.errors import PerfError
from tests.srd.loopback import PLAIN
from tests.srd.perf.ends import HOST


async def test_listen__a_port_of_the_system_is_free_for_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[socket.socket] = []
    is_free = opening._is_free_for_tcp

    def take_the_first(host: str, port: int) -> bool:
        if not taken:
            taken.append(socket.create_server((host, port)))
        return is_free(host, port)

    monkeypatch.setattr(opening, "_is_free_for_tcp", take_the_first)
    async with await opening.listen(HOST, port=0, config=PLAIN) as endpoint:
        with taken[0]:
            assert endpoint.address[1] != taken[0].getsockname()[1]
        with socket.create_server((HOST, endpoint.address[1])):
            pass


async def test_listen__no_port_is_free_for_tcp_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_is_free_for_tcp", lambda *_: False)
    with pytest.raises(PerfError, match=r"127.0.0.1: no port .* give one with --port"):
        await opening.listen(HOST, port=0, config=PLAIN)
