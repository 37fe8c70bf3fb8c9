"""The sockets of an endpoint, in a process that is forked."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S

FORKS = """
import os, signal, socket
from srd.io.socket_set import SocketSet

sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("127.0.0.1", 0))
sockets = SocketSet([sock], open_socket=socket.socket)
port = sock.getsockname()[1]
if os.fork() == 0:
    print(f"{port} {os.getpid()}", flush=True)
signal.pause()
"""


def test_a_port_closes_with_its_process_though_a_child_lives_on() -> None:
    with subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        port, child = (int(word) for word in parent.stdout.readline().split())
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.settimeout(PATIENCE_S)
                sender.connect(("127.0.0.1", port))
                sender.send(b"somebody reads this")
                parent.kill()
                parent.wait()
                sender.send(b"nobody reads this")
                with pytest.raises(ConnectionRefusedError):
                    sender.recv(1)
        finally:
            parent.kill()
            os.kill(child, signal.SIGKILL)
