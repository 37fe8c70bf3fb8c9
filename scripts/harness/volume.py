"""A volume on servers in a lab: each server at a host of its own, the card's end at the first host.

NBD clients connect by a Unix socket, which all namespaces share, so that they run anywhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.programs import ending_with_us
from netns.topology.model import Topology, leaf_spine
from nitro_emu.ebs.replicas import COMPLETE
from scripts.harness.errors import BenchError
from scripts.harness.fio import Fio
from scripts.harness.process import Process, ProcessGroup
from scripts.harness.waiting import wait_until
from srd.secure.keys import create, create_psk

NAME: Final = "vol-1"
PORT: Final = 7480
READY_S: Final = 60.0
REPLICAS: Final = 3
_COMMAND: Final = (sys.executable, "-m", "nitro_emu.cli.volume")


def fabric(*, name: str, shape: Shape | None, seed: int = 1) -> Topology:
    """Return a host for the card's end and one for each server, each at a leaf of its own, with four spines."""
    return leaf_spine(leaves=1 + REPLICAS, spines=4, hosts_per_leaf=1, shape=shape, name=name, seed=seed)


@dataclass(slots=True)
class VolumeLab:
    """Servers that run, and a volume that may be attached. Made by `volume_lab`."""

    lab: Lab
    group: ProcessGroup
    directory: Path
    servers: dict[str, Process]
    """By host."""
    security: Sequence[str]
    """Options of all commands that reach servers."""
    fio: Fio

    @property
    def client(self) -> str:
        return self.lab.topology.hosts[0]

    @property
    def uri(self) -> str:
        return f"nbd+unix:///{NAME}?socket={self.directory}/run/{NAME}.sock"

    def start_server(self, host: str) -> None:
        """Start a server on its disk, which it had before, and wait until it serves."""
        where = ["-B", self.lab.address(host), "-p", str(PORT)]
        argv = [*_COMMAND, "serve", str(self.directory / host), *where, "--json-lines", *self.security]
        process = self.group.start(f"server at {host}", self.lab.command(host, argv))
        self.group.event(process, "ready", bound_s=READY_S)
        self.servers[host] = process

    def kill_server(self, host: str) -> None:
        self.servers.pop(host).kill()

    def create(self, *, size_bytes: int) -> None:
        """Create the volume, encrypted for a card whose key is made. Raises BenchError."""
        card = self.directory / "card.yaml"
        card.write_text("vfs: [{name: efa_0, address: 127.0.0.1}]\nkey_file: card.key\n", encoding="utf-8")
        servers = [
            part
            for host in self.servers
            for part in ("--server", f"{self._leaf(host)}={self.lab.address(host)}:{PORT}")
        ]
        size = ("--size", str(size_bytes), "--replicas", str(REPLICAS))
        self._run("create", NAME, *size, *self._catalog, *self.security, "--card-file", str(card), *servers)

    @contextmanager
    def attached(self, *options: str) -> Iterator[Process]:
        argv = [*_COMMAND, "attach", NAME, "--json-lines", *self._run_dir, *self._catalog, *self.security]
        argv += ["--card-file", str(self.directory / "card.yaml"), *options]
        process = self.group.start("nitro-volume attach", self.lab.command(self.client, argv))
        self.group.event(process, "ready", bound_s=READY_S)
        yield process
        self._run("detach", NAME, *self._run_dir)
        self.group.ended(process, bound_s=READY_S)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._run("status", NAME, "--json", *self._run_dir))
        return found

    def status_text(self) -> str:
        return self._run("status", NAME, *self._run_dir)

    def await_repair(self, *, within_s: float) -> None:
        wait_until(
            lambda: set(self.status()["device"]["replicas"].values()) == {COMPLETE},
            within_s=within_s,
            missing="the replicas were not complete",
        )

    def scrub(self) -> str:
        """Have the servers check their blocks; return what `nitro-volume scrub` says."""
        return self._run("scrub", NAME, *self._catalog, *self.security)

    @property
    def _run_dir(self) -> Sequence[str]:
        return ("--run-dir", str(self.directory / "run"))

    @property
    def _catalog(self) -> Sequence[str]:
        return ("--catalog", str(self.directory / "volumes.db"))

    def _leaf(self, host: str) -> str:
        (link,) = self.lab.topology.links_of[host]
        return link.b if link.a == host else link.a

    def _run(self, *arguments: str) -> str:
        argv = ending_with_us(self.lab.command(self.client, [*_COMMAND, *arguments]))
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=READY_S)
        if done.returncode:
            raise BenchError(f"nitro-volume {arguments[0]}: {done.stderr.strip() or done.returncode}")
        return done.stdout


@contextmanager
def volume_lab(
    name: str, *, shape: Shape | None, size_bytes: int, below: Path | None = None, encrypted: bool = True
) -> Iterator[VolumeLab]:
    """Have a lab with a server at each host but the first, and a volume. Raises BenchError.

    Their disks are in a directory `below`, and removed. `encrypted`: on the way; what servers get is encrypted in any
    case.
    """
    with (
        Lab.up(fabric(name=name, shape=shape)) as lab,
        TemporaryDirectory(prefix="volume-", dir=below, ignore_cleanup_errors=True) as place,
        ProcessGroup() as group,
    ):
        directory = Path(place)
        psk, files = directory / "psk", directory / "fio"
        files.mkdir()
        create_psk(psk)
        create(directory / "card.key")
        security = ("--psk-file", str(psk)) if encrypted else ("--plain",)
        made = VolumeLab(lab, group, directory, {}, security, Fio(group, files))
        for host in lab.topology.hosts[1:]:
            made.start_server(host)
        made.create(size_bytes=size_bytes)
        yield made
