"""`nitro-volume` as processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nitro_emu.ebs.attachment import ask
from srd.secure.keys import create, create_psk
from tests.nitro_emu.processes import loopback_address
from tests.programs import run_to_end
from tests.srd.cli.processes import Process


@dataclass(frozen=True)
class Attached:
    name: str
    run_dir: Path
    process: Process

    @property
    def uri(self) -> str:
        return f"nbd+unix:///{self.name}?socket={self.run_dir / self.name}.sock"

    def detach(self) -> None:
        result = run_to_end(command("detach", self.name, "--run-dir", str(self.run_dir)))
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        assert self.process.wait() == 0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "nitro_emu.cli.volume", *arguments]


@contextmanager
def attached(run_dir: Path, *options: str, name: str = "vol-1") -> Iterator[Attached]:
    with Process(command("attach", name, "--run-dir", str(run_dir), "--json-lines", *options)) as process:
        process.event("ready")
        yield Attached(name, run_dir, process)


@dataclass
class Servers:
    """Three volume servers on addresses of their own, a catalog and a card, in one directory."""

    directory: Path
    addresses: list[str] = field(default_factory=lambda: [loopback_address() for _ in range(3)])
    running: dict[int, Process] = field(default_factory=dict)

    @property
    def run_dir(self) -> Path:
        return self.directory / "run"

    @property
    def options(self) -> list[str]:
        """Of commands that need catalog and servers."""
        return ["--catalog", str(self.directory / "volumes.db"), "--psk-file", str(self.directory / "psk")]

    @property
    def card(self) -> Path:
        return self.directory / "card.yaml"

    @property
    def places(self) -> list[str]:
        return [f"--server=rack-{at}={address}:4420" for at, address in enumerate(self.addresses)]

    def start(self, number: int) -> None:
        directory = str(self.directory / f"server-{number}")
        psk = ["--psk-file", str(self.directory / "psk")]
        process = Process(command("serve", directory, "-B", self.addresses[number], "--json-lines", *psk))
        self.running[number] = process
        process.event("ready")

    def kill(self, number: int) -> None:
        with self.running.pop(number) as process:
            process.popen.kill()

    def end(self) -> None:
        for number in list(self.running):
            self.kill(number)

    def create(self, *options: str, name: str = "vol-1", size: str = "128M") -> None:
        argv = command(
            "create", name, "--size", size, "--card-file", str(self.card), *self.options, *self.places, *options
        )
        run_to_end(argv, check=True)

    def stored(self) -> list[bytes]:
        """What is in the files of the servers."""
        return [path.read_bytes() for path in self.directory.glob("server-*/**/*") if path.is_file()]

    def replicas(self, name: str = "vol-1") -> set[str]:
        """What the attachment says of the replicas."""
        return set(ask(self.run_dir, name, "status")["device"]["replicas"].values())

    @contextmanager
    def attached(self, *options: str, name: str = "vol-1") -> Iterator[Attached]:
        with attached(self.run_dir, "--card-file", str(self.card), *self.options, *options, name=name) as found:
            yield found


@contextmanager
def volume_servers(directory: Path) -> Iterator[Servers]:
    made = Servers(directory)
    create_psk(directory / "psk")
    create(directory / "card.key")
    made.card.write_text("vfs: [{name: efa_0, address: 127.0.0.1}]\nkey_file: card.key\n")
    with ExitStack() as stack:
        stack.callback(made.end)
        for number in range(len(made.addresses)):
            made.start(number)
        yield made
