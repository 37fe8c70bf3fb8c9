"""The chip: boots a card, which is to measure it, to compare it with its signed manifest, and only then to help it.

    chip = Chip(ChipStore(directory), now=clock)
    secret = chip.boot(files)            # 32 bytes that the caller wipes; None: chip.reason says why
    chip.nsm                             # what a booted card may ask

Rules.
1. Each boot begins again, and checks the store and measures all files again.
2. The chip reads the files itself. Nothing that a card says about their content counts.
3. A fault of any kind leaves SEALED with one reason. The secret is decrypted as the last step, after all checks.
4. The lowest version is raised on the disk before the secret is given, so that no crash makes a rollback possible.

    RESET -> ROM (the store is sound) -> MEASURE -> VERIFY -> RUN;  ROM, MEASURE, VERIFY --fault--> SEALED

Only a RUN that all these steps have led to has a secret to give. A card's end, and a new boot, are a RESET.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final

from netns.base.naming import named
from nitro_emu.chip.messages import SECRET_BYTES, one_line
from nitro_emu.chip.nsm import Nsm, module_id
from nitro_emu.chip.pcrs import MAX_DESCRIPTION, PcrEvent, replay
from nitro_emu.chip.store import ChipStore, Contents
from nitro_emu.errors import TrustError
from nitro_emu.trust.manifest import (
    MAX_MANIFEST_BYTES,
    PCR_CARD,
    PCR_CONFIGURATION,
    PCR_ENVIRONMENT,
    PCR_IMAGE,
    PCR_VENDOR,
    PCR_VERSION,
    Manifest,
    first_difference,
    name_digest,
    open_manifest_untrusted,
    vendor_fingerprint,
    version_digest,
)
from nitro_emu.trust.measure import (
    MAX_CONFIGURATION_BYTES,
    Environment,
    environment,
    file_sha384,
    image_digest,
    image_files,
    read_file,
)
from nitro_emu.trust.pki import LEAF_HOURS

_log: Final = logging.getLogger(__name__)


class BootState(Enum):
    """Where the boot of the card is."""

    RESET = "RESET"
    """No card has been booted since the last one ended."""

    ROM = "ROM"
    """The chip checks its own store."""

    MEASURE = "MEASURE"
    """It measures image, configuration and environment."""

    VERIFY = "VERIFY"
    """It compares them with the signed manifest."""

    RUN = "RUN"
    """All is as signed: the card has its secret, and may attest."""

    SEALED = "SEALED"
    """Something was not; the card gets nothing until a boot that succeeds."""


@dataclass(frozen=True, slots=True)
class CardFiles:
    """Where a card's files are, as the card says; absolute paths."""

    image_root: Path
    """Directory of the packages."""

    manifest: Path
    configuration: Path


@dataclass(frozen=True, slots=True)
class _Measured:
    """What was read of a card's files, once."""

    files: Mapping[str, bytes]
    image: bytes
    configuration: bytes
    manifest: bytes
    """The file's content; whether it is signed is not known yet."""


def utc_now() -> datetime:
    """Return the time of this host."""
    return datetime.now(UTC)


class Chip:
    """The root of trust of one card."""

    def __init__(
        self,
        store: ChipStore,
        *,
        now: Callable[[], datetime] = utc_now,
        environment: Callable[[], Environment] = environment,
    ) -> None:
        """Prepare to boot; `environment` measures interpreter and distributions."""
        self._store = store
        self._now = now
        self._environment = environment
        self._contents: Contents | None = None
        self.reset()

    def reset(self) -> None:
        """Forget the card that was booted."""
        self.state = BootState.RESET
        self.reason = ""
        """Why the card is SEALED; one line, empty in other states."""
        self.events: list[PcrEvent] = []
        """What the last boot measured, as far as it came."""
        self.version = 0
        """That of the card that runs; 0: none does."""
        self._nsm: Nsm | None = None
        self._booted_at: datetime | None = None

    @property
    def pcrs(self) -> dict[int, bytes]:
        """Registers 0 to 15."""
        return replay(self.events)

    @property
    def nsm(self) -> Nsm:
        """What a booted card may ask. Raises TrustError if none is."""
        if self._nsm is None:
            raise TrustError(f"the chip is in {self.state.value}; boot the card first")
        return self._nsm

    def status(self) -> dict[str, Any]:
        """Return state and reason, the card's name and versions, and the registers; None for what is not known."""
        contents = self._contents
        return {
            "state": self.state.value,
            "reason": self.reason or None,
            "card": contents and contents.card,
            "module_id": contents and module_id(contents),
            "version": self.version or None,
            "minimum_version": contents and contents.minimum_version,
            "booted_at": self._booted_at and self._booted_at.isoformat(timespec="seconds"),
            "pcrs": self.pcrs,
        }

    def start(self) -> None:
        """Look into the store, so that the status knows the card's name; what is wrong there is a boot's to say."""
        try:
            self._contents = self._store.load()
        except TrustError as error:
            _log.warning("%s", error)

    def boot(self, files: CardFiles) -> bytearray | None:
        """Return the card's secret, which the caller must wipe; None if the card is sealed, for `reason`."""
        self.reset()
        self._booted_at = self._now()
        secret = bytearray(SECRET_BYTES)
        try:
            contents = self._rom()
            measured = self._measure(files, contents=contents)
            self._verify(measured, files=files, contents=contents, secret=secret)
        except Exception as error:  # noqa: BLE001 - whatever is wrong, the card gets nothing
            secret[:] = bytes(SECRET_BYTES)
            self._seal(error)
        self._keep_record()
        return None if self.state is BootState.SEALED else secret

    def check_update(self, files: CardFiles) -> int:
        """Return the version of a manifest that a boot with these files would accept. Raises TrustError."""
        contents = self._store.load()
        measured = _read(files)
        manifest = _open(measured.manifest, path=files.manifest, contents=contents)
        _compare(measured, manifest, files=files, contents=contents, running=self.version)
        return manifest.version

    # -- the steps ----------------------------------------------------------------------------------------------

    def _rom(self) -> Contents:
        self.state, self._contents = BootState.ROM, None
        contents = self._contents = self._store.load()
        _check_clock(self._now(), contents=contents)
        return contents

    def _measure(self, files: CardFiles, *, contents: Contents) -> _Measured:
        self.state = BootState.MEASURE
        found = self._environment()
        self._add(PCR_VENDOR, vendor_fingerprint(contents.vendor), "the vendor's key")
        self._add(PCR_ENVIRONMENT, found.digest, found.description)
        measured = _read(files)
        self._add(PCR_IMAGE, measured.image, f"the image, {len(measured.files)} files")
        self._add(PCR_CONFIGURATION, measured.configuration, f"the configuration {files.configuration.name}")
        return measured

    def _verify(self, measured: _Measured, *, files: CardFiles, contents: Contents, secret: bytearray) -> None:
        self.state = BootState.VERIFY
        manifest = _open(measured.manifest, path=files.manifest, contents=contents)
        self._add(PCR_VERSION, version_digest(manifest.version), f"the version {manifest.version}")
        self._add(PCR_CARD, name_digest(manifest.name), f"the card's name, {manifest.name}")
        _compare(measured, manifest, files=files, contents=contents, running=0)
        contents = self._contents = self._store.set_minimum_version(contents, version=manifest.version)
        self._store.unseal_into(secret, contents=contents)
        self._nsm = Nsm(self.pcrs, contents=contents, now=self._now)
        self.state, self.version = BootState.RUN, manifest.version
        _log.info("card %s runs, version %d", manifest.name, manifest.version)

    def _add(self, index: int, digest: bytes, description: str) -> None:
        self.events.append(PcrEvent(index, digest, one_line(description)[:MAX_DESCRIPTION]))

    def _seal(self, error: Exception) -> None:
        if not isinstance(error, TrustError):
            _log.error("boot: internal error", exc_info=error)
            error = TrustError(f"internal error of the chip ({type(error).__name__}: {error}); see its log")
        self.state, self._nsm, self.version = BootState.SEALED, None, 0
        self.reason = one_line(str(error))
        _log.warning("SEALED: %s", self.reason)

    def _keep_record(self) -> None:
        record = {
            "at": self._booted_at and self._booted_at.isoformat(timespec="seconds"),
            "state": self.state.value,
            "reason": self.reason or None,
            "version": self.version or None,
            "events": [event.as_dict() for event in self.events],
            "pcrs": {str(index): value.hex() for index, value in self.pcrs.items()},
        }
        try:
            self._store.write_boot(record)
        except TrustError as error:  # a log only; what must not be lost is written before
            _log.warning("%s", error)


def _check_clock(now: datetime, *, contents: Contents) -> None:
    """Raise TrustError unless the chip's certificate is valid now, or its documents would be refused."""
    certificate = contents.intermediate.certificate
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not start <= now <= end - timedelta(hours=LEAF_HOURS):
        raise TrustError(
            f"the clock says {now:%Y-%m-%d %H:%M}, the chip's certificate is valid from {start:%Y-%m-%d %H:%M}"
            f" to {end:%Y-%m-%d %H:%M}; set the clock, or make a new chip"
        )


def _read(files: CardFiles) -> _Measured:
    """Read all of a card's files, once. Raises TrustError."""
    found = image_files(files.image_root)
    return _Measured(
        files=found,
        image=image_digest(found),
        configuration=file_sha384(files.configuration, max_bytes=MAX_CONFIGURATION_BYTES),
        manifest=read_file(files.manifest, max_bytes=MAX_MANIFEST_BYTES),
    )


def _open(data: bytes, *, path: Path, contents: Contents) -> Manifest:
    with named(f"{path.name}: ", TrustError):
        return open_manifest_untrusted(data, key=contents.vendor)


def _compare(measured: _Measured, manifest: Manifest, *, files: CardFiles, contents: Contents, running: int) -> None:
    """Raise TrustError with the first reason why this chip's card may not run what was measured."""
    if manifest.name != contents.card:
        raise TrustError(f"{files.manifest.name} is for the card {manifest.name}, this is {contents.card}; get its own")
    if manifest.version < (lowest := max(contents.minimum_version, running)):
        raise TrustError(f"version {manifest.version} is below {lowest}, which has run; a rollback is refused")
    if measured.configuration != manifest.configuration:
        raise TrustError(f"the configuration {files.configuration.name} is not the signed one; undo the change to it")
    if measured.image != manifest.image:
        difference = first_difference(manifest.files, measured.files) if manifest.files else "its files are not listed"
        raise TrustError(f"the image {files.image_root} is not the signed one: {difference}; install it again")
