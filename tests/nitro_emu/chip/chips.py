"""A small card to boot: an image of a few files, settings, a vendor's key, a chip; and a clock that tests set."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePrivateKey, generate_private_key

from nitro_emu.chip.chip import CardFiles, Chip
from nitro_emu.chip.client import BootReport, ChipClient
from nitro_emu.chip.messages import CHIP_SOCKET
from nitro_emu.chip.server import ChipServer
from nitro_emu.chip.store import ChipStore
from nitro_emu.trust.manifest import make_manifest, sign_manifest
from nitro_emu.trust.measure import Environment
from tests.patience import PATIENCE_S

START: Final = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ENVIRONMENT: Final = Environment(digest=hashlib.sha384(b"environment").digest(), description="cpython, 1 distribution")
FILES: Final = {
    "devmem/pool.py": "pool = 1\n",
    "nitro_emu/chip/__init__.py": "",
    "srd/engine.py": "engine = 1\n",
    "srd/engine.cpython-311-x86_64-linux-gnu.so": "\x7fELF",
}


class Clock:
    """A time that only a test changes."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time


@dataclass(kw_only=True)
class Rig:
    """The files of a card and its chip's directory."""

    directory: Path
    vendor: EllipticCurvePrivateKey = field(default_factory=lambda: generate_private_key(SECP384R1()))
    clock: Clock = field(default_factory=Clock)
    card: str = "card-a"

    def __post_init__(self) -> None:
        write_files(self.image, FILES)
        self.configuration.write_text("name: card-a\nvfs: []\n")
        self.sign()
        self.store = ChipStore.create(
            self.chip_directory, vendor=self.vendor.public_key(), card="card-a", now=self.clock.time
        )

    @property
    def image(self) -> Path:
        return self.directory / "image"

    @property
    def configuration(self) -> Path:
        return self.directory / "card-a.yaml"

    @property
    def manifest(self) -> Path:
        return self.directory / "card-a.manifest"

    @property
    def chip_directory(self) -> Path:
        return self.directory / "chip"

    @property
    def files(self) -> CardFiles:
        return CardFiles(image_root=self.image, manifest=self.manifest, configuration=self.configuration)

    def sign(self, *, version: int = 1, name: str = "card-a", key: EllipticCurvePrivateKey | None = None) -> None:
        """Sign the files as they are now."""
        made = make_manifest(
            name=name,
            version=version,
            image_root=self.image,
            configuration=self.configuration,
            issued_at_s=int(self.clock.time.timestamp()),
        )
        self.manifest.write_bytes(sign_manifest(made, key=key or self.vendor))

    def chip(self) -> Chip:
        """Return a chip as a process that starts has it: it knows what is in its directory."""
        return Chip(ChipStore(self.chip_directory), now=self.clock, environment=lambda: ENVIRONMENT)

    def boot(self, client: ChipClient, secret: bytearray | None = None) -> BootReport:
        files = self.files
        return asyncio.run(
            client.boot(
                image_root=files.image_root,
                manifest=files.manifest,
                configuration=files.configuration,
                secret=bytearray(32) if secret is None else secret,
                timeout_s=PATIENCE_S,
            )
        )


def write_files(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@contextmanager
def running(server: ChipServer) -> Iterator[None]:
    """Serve in a thread, until the end of the block."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(server.run())

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        loop.close()


@contextmanager
def served(chip: Chip, directory: Path) -> Iterator[ChipServer]:
    """Serve a chip in a thread, until the end of the block."""
    with ChipServer(chip, path=directory / CHIP_SOCKET) as server, running(server):
        yield server
