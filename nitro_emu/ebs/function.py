"""A virtual function of kind EBS: a volume on servers, which programs of the host use by NBD at the card's socket.

It is `nitro-volume attach` in the card's process: RUN_DIR/NAME.sock is NBD's, RUN_DIR/NAME.control.sock is asked by
`nitro-volume status` and `detach` with the card's run directory. The volume's key is unwrapped by the card's, which a
security chip releases to software and settings as they were signed.

The card does not wait for the servers: they may start later. Until a majority answers, and no other writer has the
volume, there is no NBD socket, and the status says why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nitro_emu.ebs import remote
from nitro_emu.ebs.attachment import Attachment, AttachmentSettings, claimed
from nitro_emu.ebs.catalog import Catalog, Volume
from nitro_emu.ebs.config import EbsConfig
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.replicas import report_of
from nitro_emu.ebs.volume_key import unwrap
from nitro_emu.ebs.xts import EncryptedDevice

if TYPE_CHECKING:
    import socket

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from nitro_emu.peers.vf_trust import VfTrust

AGAIN_S: Final = 1.0
"""After an attachment that failed, each of which takes some seconds."""


class EbsFunction:
    """One volume. `start` it in a running event loop; `drain` and `close` it."""

    def __init__(
        self,
        config: EbsConfig,
        *,
        trust: VfTrust,
        card_key: Callable[[], X25519PrivateKey],
        run_dir: Path,
        on_failure: Callable[[str], None],
    ) -> None:
        """`on_failure` is called with the reason when it has ended by itself."""
        self.config = config
        self._settings = AttachmentSettings(name=config.name, run_dir=run_dir, provisioned=config.provisioned)
        self._trust = trust
        self._card_key = card_key
        self._on_failure = on_failure
        self._log = logging.getLogger("nitro_emu.volume")
        self._opened = ExitStack()
        self._attachment: Attachment | None = None
        self._task: asyncio.Task[None] | None = None
        self._state = "attaching"
        self._is_ending = False

    def start(self) -> None:
        """Unwrap the key, and begin to attach the volume. Raises VolumeError."""
        path = self.config.catalog
        if not path.exists():
            raise VolumeError(f"{self.config.name}: catalog: {path} is not there; nitro-volume create makes it")
        with Catalog(path) as known:
            volume = known.volume(self.config.volume)
        for host, _ in volume.addresses:
            self._trust.check_egress(host)
        key = unwrap(volume.wrapped_key, card=self._card_key(), volume=volume.name)
        control = self._opened.enter_context(claimed(self._settings))
        self._task = asyncio.ensure_future(self._run(volume, key, control))
        self._task.add_done_callback(self._on_end)

    async def _run(self, volume: Volume, key: bytes, control: socket.socket) -> None:
        """Attach it, as soon as that can be, and serve it until it is detached."""
        async with AsyncExitStack() as stack:
            while True:
                try:
                    device = await stack.enter_async_context(
                        remote.attached(
                            volume, security=self._trust.security, bind=(self.config.address, self.config.port)
                        )
                    )
                    break
                except VolumeError as error:
                    if (state := f"attaching: {error}") != self._state:
                        self._log.warning("%s: %s", self.config.name, error)
                    self._state = state
                await asyncio.sleep(AGAIN_S)
            self._attachment = await stack.enter_async_context(
                Attachment.open(
                    self._settings,
                    control=control,
                    device=EncryptedDevice(device, key=key),
                    report=lambda: report_of(device),
                )
            )
            self._state = "attached"
            self._log.info("%s: %s is attached at %s", self.config.name, volume.name, self._attachment.addresses[0])
            await self._attachment.detached.wait()
            self._state = "detached"
            self._attachment = None

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._opened.close()
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._on_failure(str(error) if isinstance(error, VolumeError) else f"internal error: {error!r}")
        elif not self._is_ending:
            self._on_failure("was detached by nitro-volume detach")

    async def drain(self) -> None:
        """Let no further client in, finish the requests in progress, flush, and detach."""
        self._is_ending = True
        if self._task is None:
            return
        if self._attachment is None:
            self._task.cancel()
        else:
            self._attachment.detached.set()
        await asyncio.wait([self._task])

    def fail(self) -> None:
        """See `Function`."""
        self.close()

    def close(self) -> None:
        """End it; the volume is detached once the loop has run."""
        self._is_ending = True
        if self._task is None:
            self._opened.close()
        else:
            self._task.cancel()

    def on_new_mapping(self) -> None:
        """Do nothing: a volume is in no VPC."""

    def keep_alive(self) -> None:
        """Do nothing: no program has a device of it open."""

    def keep(self) -> None:
        """Keep nothing: the program that replaces this one attaches the volume again."""

    def status(self) -> dict[str, Any]:
        """Return its state, and what the attachment does."""
        found: dict[str, Any] = {"state": self._state, "volume": self.config.volume}
        if self._attachment is None:
            return found
        said = self._attachment.status()
        found.update({key: said[key] for key in ("size_bytes", "addresses", "clients")}, **said["device"])
        return found

    def stats(self) -> dict[str, Any]:
        """Return what clients have asked of it; nothing while it is not attached."""
        return {} if self._attachment is None else self._attachment.counters()
