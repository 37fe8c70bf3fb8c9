"""Volume servers as processes on loopback."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from srd import Psk
from tests.srd.cli.processes import Process

SERVE = Path(__file__).with_name("serve.py")
KEY = bytes(range(32))


class ServerProcess:
    """One server, which keeps its directory and its port when it is started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = 0
        self.start()

    def start(self) -> None:
        argv = [sys.executable, str(SERVE), str(self.directory), str(self.port), KEY.hex()]
        self.process = Process(argv)

    def ready(self) -> None:
        line = self.process.stdout.next()
        assert line is not None, "\n".join(self.process.stderr.all())
        self.port = json.loads(line)["port"]

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def kill(self) -> None:
        self.process.__exit__(None, None, None)  # which is SIGKILL

    def pause(self) -> None:
        self.process.popen.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.popen.send_signal(signal.SIGCONT)


def security() -> Psk:
    return Psk(KEY)
