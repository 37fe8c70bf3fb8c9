from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netns.backends.relay.control_server import MAX_REQUEST_BYTES, ControlServer
from netns.errors import BackendError, ShapeError


def answer(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("op") == "fail":
        raise ShapeError("loss: 120 % is not between 0 % and 100 %")
    return {"request": message}


class ServerFixture:
    """A control server, its event loop and its clients, in one thread without blocking."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "relay.sock"
        self.epoll = select.epoll()
        self.control_server = ControlServer(self.path, epoll=self.epoll, answer=answer)
        self.clients: list[socket.socket] = []

    def client(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.settimeout(0)
        client.connect(str(self.path))
        self.clients.append(client)
        return client

    def serve(self) -> int:
        """Handle events until there are none; return how many there were."""
        served = 0
        while events := self.epoll.poll(0):
            for fd, _ in events:
                self.control_server.handle(fd)
                served += 1
        return served

    def request(self, client: socket.socket, text: bytes) -> list[Any]:
        client.sendall(text)
        self.serve()
        return [json.loads(line) for line in client.recv(1 << 20).splitlines()]

    def close(self) -> None:
        self.control_server.close()
        self.epoll.close()
        for client in self.clients:
            client.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerFixture]:
    made = ServerFixture(tmp_path)
    yield made
    made.close()


def test_a_line_is_a_request_and_gets_a_line(server: ServerFixture) -> None:
    assert server.request(server.client(), b'{"op": "counters"}\n') == [{"request": {"op": "counters"}}]


def test_requests_may_come_together_or_in_pieces(server: ServerFixture) -> None:
    client = server.client()
    assert server.request(client, b'{"n": 1}\n{"n": 2}\n{"n"') == [{"request": {"n": 1}}, {"request": {"n": 2}}]
    assert server.request(client, b": 3}\n") == [{"request": {"n": 3}}]


def test_clients_do_not_mix(server: ServerFixture) -> None:
    one, two = server.client(), server.client()
    one.sendall(b'{"n": ')
    assert server.request(two, b'{"n": 2}\n') == [{"request": {"n": 2}}]
    assert server.request(one, b"1}\n") == [{"request": {"n": 1}}]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "a request is a JSON object"),
        (b'{"op": "fail"}', "loss: 120 % is not between 0 % and 100 %"),
    ],
)
def test_bad_request_gets_an_error_reply(server: ServerFixture, line: bytes, error: str) -> None:
    client = server.client()
    (reply,) = server.request(client, line + b"\n")
    assert error in reply["error"]
    assert server.request(client, b"{}\n") == [{"request": {}}]


def test_a_request_without_end_is_cut_off(server: ServerFixture) -> None:
    client = server.client()
    for _ in range(3):
        client.sendall(b"x" * (MAX_REQUEST_BYTES // 2))
        server.serve()
    assert client.recv(10) == b""


def test_closed_connection_is_removed(server: ServerFixture) -> None:
    client = server.client()
    server.serve()
    client.close()
    assert server.serve() == 1
    assert server.serve() == 0


def test_client_that_does_not_read_is_disconnected(server: ServerFixture) -> None:
    blocked = server.client()
    try:
        for _ in range(10_000):
            blocked.send(b'{"op": "counters"}\n' * 100)
            server.serve()
    except (BrokenPipeError, ConnectionResetError):
        pass
    else:
        pytest.fail("the control server buffers replies without bound")
    assert server.request(server.client(), b"{}\n") == [{"request": {}}]


def test_events_of_others_are_left_alone(server: ServerFixture) -> None:
    server.control_server.handle(server.epoll.fileno())


def test_socket_of_a_running_relay_is_not_replaced(server: ServerFixture) -> None:
    with select.epoll() as epoll, pytest.raises(BackendError, match=r"relay\.sock: cannot listen: .*take its lab down"):
        ControlServer(server.path, epoll=epoll, answer=answer)
    assert server.request(server.client(), b"{}\n") == [{"request": {}}]


def test_close__removes_its_own_path_only(tmp_path: Path) -> None:
    server = ServerFixture(tmp_path)
    server.close()
    assert not server.path.exists()
    server = ServerFixture(tmp_path)
    server.path.unlink()
    server.path.write_text("another's")
    server.close()
    assert server.path.read_text() == "another's"
