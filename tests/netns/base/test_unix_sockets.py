"""netns.base.unix_sockets: who listens at a path, who has connected, and what a client makes of replies."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from netns.base.unix_sockets import LineClient, listen, peer_credentials
from tests.patience import PATIENCE_S


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_listen__for_its_owner_alone_by_default(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "s"
    with listen(path, kind=kind) as listener, socket.socket(socket.AF_UNIX, kind) as client:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        client.connect(str(path))
        accepted, _ = listener.accept()
        with accepted:
            assert peer_credentials(accepted) == (os.getpid(), os.getuid())
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_listen__mode(tmp_path: Path) -> None:
    with listen(tmp_path / "s", mode=0o666):
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o666


def test_listen__replaces_a_socket_that_a_dead_process_has_left(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listen(path).close()
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    with listen(path):
        with pytest.raises(OSError, match="a process listens there") as caught:
            listen(path)
        assert caught.value.errno == errno.EADDRINUSE


def test_listen__leaves_what_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(FileExistsError, match="it is no socket"):
        listen(tmp_path / "s")
    assert (tmp_path / "s").read_text() == "mine"
    with pytest.raises(OSError, match="too long"):
        listen(tmp_path / ("x" * 200))


def listener_refuses(listener: socket.socket) -> bool:
    """Whether the kernel can refuse descriptors (SO_PASSRIGHTS, Linux 6.16)."""
    try:
        return listener.getsockopt(socket.SOL_SOCKET, 83) == 0
    except OSError:
        return False


class Answering:
    """Answers one request with these bytes, and hangs up."""

    def __init__(self, path: Path, reply: bytes) -> None:
        self._listener = listen(path)
        self._listener.settimeout(PATIENCE_S)
        self._reply = reply
        self.request = b""
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        client, _ = self._listener.accept()
        with client:
            client.settimeout(PATIENCE_S)
            self.request = client.recv(1000)
            client.sendall(self._reply)

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


def test_client__asks_and_is_answered(tmp_path: Path) -> None:
    server = Answering(tmp_path / "s", b'{"ok": 1}\n')
    with LineClient(tmp_path / "s", timeout_s=PATIENCE_S) as client:
        assert client.ask_untrusted({"command": "x"}) == {"ok": 1}
    server.close()
    assert server.request == b'{"command": "x"}\n'


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", EOFError),
        (b'{"ok": 1}', EOFError),
        (b"hello\n", ValueError),
        (b"[1]\n", ValueError),
        (b"\xff\n", ValueError),
        (b"[" * 100_000 + b"\n", ValueError),
    ],
)
def test_client__no_answer(tmp_path: Path, reply: bytes, error: type[Exception]) -> None:
    server = Answering(tmp_path / "s", reply)
    with LineClient(tmp_path / "s", timeout_s=PATIENCE_S) as client, pytest.raises(error):
        client.ask_untrusted({})
    server.close()


def test_client__nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LineClient(tmp_path / "s", timeout_s=1)


@pytest.mark.parametrize("takes_descriptors", [False, True])
def test_listen__descriptors_only_where_they_are_taken(tmp_path: Path, *, takes_descriptors: bool) -> None:
    path = tmp_path / "s"
    with listen(path, takes_descriptors=takes_descriptors) as listener, socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        accepted, _ = listener.accept()
        with accepted:
            if takes_descriptors:
                socket.send_fds(client, [b"x"], [0])
                _, fds, _, _ = socket.recv_fds(accepted, 1, 1)
                os.close(fds[0])
            elif listener_refuses(listener):
                with pytest.raises(PermissionError):
                    socket.send_fds(client, [b"x"], [0])
