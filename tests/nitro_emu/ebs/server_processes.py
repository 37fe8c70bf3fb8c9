"""Volume servers as processes on loopback, on disks that fail (`faulty_disk`)."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from nitro_emu.ebs.catalog import ServerAddress, Volume
from srd import Psk
from tests.nitro_emu.ebs.faulty_disk import FAILS_SYNC, LIES
from tests.nitro_emu.processes import loopback_address
from tests.srd.cli.processes import Process

SERVE = Path(__file__).with_name("serve.py")
KEY = bytes(range(32))
PORT = 7001
"""Below those that the kernel gives to others while the server is dead."""


class ServerProcess:
    """One server, which keeps its directory and its address when it is started again."""

    def __init__(self, directory: Path, *, seed: int = 0, acks_early: bool = False) -> None:
        self.directory = directory
        self.address = loopback_address(), PORT
        self._options = [str(seed), *(["early"] if acks_early else [])]
        self.start()

    def start(self) -> None:
        host, port = self.address
        argv = [sys.executable, str(SERVE), str(self.directory), host, str(port), KEY.hex(), *self._options]
        self.process = Process(argv)

    def ready(self) -> None:
        assert self.process.stdout.next() is not None, "\n".join(self.process.stderr.all())

    def kill(self) -> None:
        """End it by SIGKILL: what it has not synchronised is lost."""
        self.process.__exit__(None, None, None)

    def pause(self) -> None:
        self.process.popen.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.popen.send_signal(signal.SIGCONT)

    def cut(self) -> None:
        """Have the kernel drop what is sent to it; what it sends arrives."""
        self.process.popen.send_signal(signal.SIGUSR1)

    def heal(self) -> None:
        self.process.popen.send_signal(signal.SIGUSR2)

    def fail_sync(self) -> None:
        """Have its disk fail until `mend`; it stops at the first write."""
        (self.directory / FAILS_SYNC).touch()

    def lie(self) -> None:
        """Have its disk synchronise nothing from now on, and say that it has."""
        (self.directory / LIES).touch()

    def mend(self) -> None:
        """Put in another disk; it is to be killed and started then."""
        (self.directory / FAILS_SYNC).unlink()


def security() -> Psk:
    return Psk(KEY)


def volume_on(servers: Sequence[ServerProcess], *, number: int, size_bytes: int) -> Volume:
    """Return a volume that these servers have, or are to have."""
    places = tuple(ServerAddress(*server.address, f"rack-{at}") for at, server in enumerate(servers))
    return Volume(f"vol-{number}", number, size_bytes, b"", places)
