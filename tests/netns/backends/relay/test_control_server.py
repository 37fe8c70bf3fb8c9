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
    return {"heard": message}


class Office:
    """A desk, the loop that serves it, and clients of it: all in this thread, without waiting."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "relay.sock"
        self.epoll = select.epoll()
        self.desk = ControlServer(self.path, epoll=self.epoll, answer=answer)
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
                self.desk.handle(fd)
                served += 1
        return served

    def ask(self, client: socket.socket, text: bytes) -> list[Any]:
        client.sendall(text)
        self.serve()
        return [json.loads(line) for line in client.recv(1 << 20).splitlines()]

    def close(self) -> None:
        self.desk.close()
        self.epoll.close()
        for client in self.clients:
            client.close()


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path)
    yield made
    made.close()


def test_a_line_is_a_request_and_gets_a_line(office: Office) -> None:
    assert office.ask(office.client(), b'{"op": "counters"}\n') == [{"heard": {"op": "counters"}}]


def test_requests_may_come_together_or_in_pieces(office: Office) -> None:
    client = office.client()
    assert office.ask(client, b'{"n": 1}\n{"n": 2}\n{"n"') == [{"heard": {"n": 1}}, {"heard": {"n": 2}}]
    assert office.ask(client, b": 3}\n") == [{"heard": {"n": 3}}]


def test_clients_do_not_mix(office: Office) -> None:
    one, two = office.client(), office.client()
    one.sendall(b'{"n": ')
    assert office.ask(two, b'{"n": 2}\n') == [{"heard": {"n": 2}}]
    assert office.ask(one, b"1}\n") == [{"heard": {"n": 1}}]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "a request is a JSON object"),
        (b'{"op": "fail"}', "loss: 120 % is not between 0 % and 100 %"),
    ],
)
def test_a_bad_request_is_answered_and_the_connection_goes_on(office: Office, line: bytes, error: str) -> None:
    client = office.client()
    (reply,) = office.ask(client, line + b"\n")
    assert error in reply["error"]
    assert office.ask(client, b"{}\n") == [{"heard": {}}]


def test_a_request_without_end_is_cut_off(office: Office) -> None:
    client = office.client()
    for _ in range(3):
        client.sendall(b"x" * (MAX_REQUEST_BYTES // 2))
        office.serve()
    assert client.recv(10) == b""


def test_a_client_that_leaves_is_forgotten(office: Office) -> None:
    client = office.client()
    office.serve()
    client.close()
    assert office.serve() == 1
    assert office.serve() == 0


def test_a_client_that_does_not_read_is_dropped_and_blocks_nobody(office: Office) -> None:
    deaf = office.client()
    try:
        for _ in range(10_000):
            deaf.send(b'{"op": "counters"}\n' * 100)
            office.serve()
    except (BrokenPipeError, ConnectionResetError):
        pass
    else:
        pytest.fail("the desk held answers without bound")
    assert office.ask(office.client(), b"{}\n") == [{"heard": {}}]


def test_events_of_others_are_left_alone(office: Office) -> None:
    office.desk.handle(office.epoll.fileno())


def test_only_the_owner_may_connect(office: Office) -> None:
    assert office.path.stat().st_mode & 0o777 == 0o700


def test_what_a_crashed_relay_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as crashed:
        crashed.bind(str(tmp_path / "relay.sock"))
    office = Office(tmp_path)
    assert office.ask(office.client(), b"{}\n") == [{"heard": {}}]
    office.close()


def test_a_living_relay_is_not_replaced(office: Office) -> None:
    with select.epoll() as epoll, pytest.raises(BackendError, match=r"relay\.sock: cannot listen: .*take its lab down"):
        ControlServer(office.path, epoll=epoll, answer=answer)
    assert office.ask(office.client(), b"{}\n") == [{"heard": {}}]


def test_a_path_that_cannot_be_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "relay.sock", tmp_path / ("x" * 120)):
        with select.epoll() as epoll, pytest.raises(BackendError, match=f"{path}: cannot listen: "):
            ControlServer(path, epoll=epoll, answer=answer)


def test_close__removes_its_own_path_only(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.close()
    assert not office.path.exists()
    office = Office(tmp_path)
    office.path.unlink()
    office.path.write_text("another's")
    office.close()
    assert office.path.read_text() == "another's"
