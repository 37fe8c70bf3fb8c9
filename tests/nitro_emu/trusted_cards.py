"""Cards with security chips: a vendor, a control plane, and the chips, as processes."""

from __future__ import annotations

import asyncio
import signal
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding

from nitro_emu.chip.client import ChipClient
from nitro_emu.chip.store import ChipStore
from nitro_emu.gid import IPV6_PORT
from nitro_emu.trust.manifest import make_manifest, sign_manifest
from nitro_emu.trust.measure import software_root
from tests.nitro_emu.cards import Card, running_card_of
from tests.nitro_emu.processes import loopback_address
from tests.nitro_emu.vpc_cards import ControlPlane, Vf
from tests.srd.cli.processes import Process

VFS = {"card-a": Vf("efa_0", "red", "172.31.0.5"), "card-b": Vf("efa_0", "red", "172.31.0.6")}


@dataclass
class Site:
    """A vendor, a control plane, and the chips of two cards, of one virtual function each."""

    directory: Path
    control_plane: ControlPlane
    vendor: EllipticCurvePrivateKey = field(default_factory=lambda: generate_private_key(SECP384R1()))
    vfs: Mapping[str, Vf] = field(default_factory=lambda: VFS)

    def __post_init__(self) -> None:
        self.addresses = {name: loopback_address() for name in self.vfs}
        for name, vf in self.vfs.items():
            vendor = self.vendor.public_key()
            store = ChipStore.create(self.chip(name), vendor=vendor, card=name, now=datetime.now(UTC))
            self.control_plane.add(
                name,
                address=self.addresses[name],
                public_key=store.load().public_key,
                run_dir=self.run_dir(name),
                vfs=[vf],
            )

    def chip(self, name: str) -> Path:
        return self.directory / f"chip-{name}"

    def run_dir(self, name: str) -> Path:
        """Not beneath a directory that the card may write to: only the card itself has made it."""
        return self.directory.with_name(f"{self.directory.name}-run") / name

    def config(self, name: str) -> Path:
        return self.directory / f"{name}.yaml"

    def manifest(self, name: str) -> Path:
        return self.directory / f"{name}.manifest"

    def root(self, name: str) -> str:
        """The certificate of a chip's root, in PEM."""
        return ChipStore(self.chip(name)).load().root.certificate.public_bytes(Encoding.PEM).decode()

    def state(self, name: str) -> str:
        with ChipClient.connect(self.chip(name)) as client:
            return str(asyncio.run(client.status())["state"])

    def configure(self, name: str, *, more: str = "") -> None:
        vf = self.vfs[name]
        self.config(name).write_text(
            f"run_dir: {self.run_dir(name)}\naudit_log: {self.directory / f'{name}.audit'}\n"
            f"chip: {{directory: {self.chip(name)}, manifest: {self.manifest(name)}}}\n"
            f"control_plane:\n  key: |\n{indented(self.control_plane.public_key_file.read_text(), 4)}"
            f"vfs:\n  - {{name: {vf.name}, address: {self.addresses[name]}, port: {IPV6_PORT}, vpc: {vf.vpc}, "
            f"private_address: {vf.private_address}{vf.more and ', ' + vf.more}}}\n{more}"
        )

    def sign(self, name: str, *, version: int = 1, output: Path | None = None) -> Path:
        output = output or self.manifest(name)
        made = make_manifest(
            name=name,
            version=version,
            image_root=software_root(),
            configuration=self.config(name),
            issued_at_s=int(time.time()),
        )
        output.write_bytes(sign_manifest(made, key=self.vendor))
        return output

    @contextmanager
    def running_chip(self, name: str) -> Iterator[Process]:
        with Process([sys.executable, "-m", "nitro_emu.cli.chip", "run", str(self.chip(name)), "--json-lines"]) as chip:
            chip.event("ready")
            yield chip
            if chip.popen.poll() is None:
                chip.kill(signal.SIGTERM)
                assert chip.wait() == 0

    @contextmanager
    def running(self, names: Sequence[str] | None = None) -> Iterator[dict[str, Card]]:
        names = tuple(self.vfs) if names is None else names
        with ExitStack() as stack:
            self.chips = {name: stack.enter_context(self.running_chip(name)) for name in names}
            yield {
                name: stack.enter_context(running_card_of(self.config(name), run_dir=self.run_dir(name)))
                for name in names
            }


def indented(text: str, columns: int) -> str:
    return textwrap.indent(text, " " * columns)
