"""The chip: boots a card, which is to measure it, to compare it with its signed manifest, and only then to help it.

    chip = Chip(ChipStore(directory), now=clock)
    secret = chip.boot(files)            # 32 bytes that the caller wipes; None: chip.reason says why
    chip.nsm                             # what a booted card may ask

Rules.
1. The steps are those of states.py. Each boot begins again, and checks the store and measures all files again.
2. The chip reads the files itself. Nothing that a card says about their content counts.
3. A fault of any kind leaves SEALED with one reason. The secret is decrypted as the last step, after all checks.
4. The lowest version is raised on the disk before the secret is given, so that no crash makes a rollback possible.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from nitro_emu.chip.messages import SECRET_BYTES, one_line
from nitro_emu.chip.nsm import Nsm, module_id
from nitro_emu.chip.pcrs import MAX_DESCRIPTION, PcrEvent, replay
from nitro_emu.chip.states import BootState, BootStep, Machine
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
        self._machine = Machine()
        self._contents: Contents | None = None
        self._forget()

    def _forget(self) -> None:
        """Begin without anything of the last boot."""
        self._events: list[PcrEvent] = []
        self._nsm: Nsm | None = None
        self._version = 0
        self._reason = ""
        self._booted_at: datetime | None = None

    @property
    def state(self) -> BootState:
        """Where the boot is."""
        return self._machine.state

    @property
    def reason(self) -> str:
        """Why the card is SEALED; one line, empty in other states."""
        return self._reason

    @property
    def events(self) -> tuple[PcrEvent, ...]:
        """What the last boot measured, as far as it came."""
        return tuple(self._events)

    @property
    def version(self) -> int:
        """That of the card that runs; 0: none does."""
        return self._version

    @property
    def pcrs(self) -> dict[int, bytes]:
        """Registers 0 to 15."""
        return replay(self._events)

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
            "reason": self._reason or None,
            "card": contents and contents.card,
            "module_id": contents and module_id(contents),
            "version": self._version or None,
            "minimum_version": contents and contents.minimum_version,
            "booted_at": self._booted_at and self._booted_at.isoformat(timespec="seconds"),
            "pcrs": self.pcrs,
        }

    def reset(self) -> None:
        """Forget the card that was booted."""
        self._machine.step(BootStep.RESET)
        self._forget()

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
        _compare(measured, manifest, files=files, contents=contents, running=self._version)
        return manifest.version

    # -- the steps ----------------------------------------------------------------------------------------------

    def _rom(self) -> Contents:
        self._machine.step(BootStep.POWER_ON)
        self._contents = None
        contents = self._contents = self._store.load()
        _check_clock(self._now(), contents=contents)
        self._machine.step(BootStep.STORE_SOUND)
        return contents

    def _measure(self, files: CardFiles, *, contents: Contents) -> _Measured:
        found = self._environment()
        self._add(PCR_VENDOR, vendor_fingerprint(contents.vendor), "the vendor's key")
        self._add(PCR_ENVIRONMENT, found.digest, found.description)
        measured = _read(files)
        self._add(PCR_IMAGE, measured.image, f"the image, {len(measured.files)} files")
        self._add(PCR_CONFIGURATION, measured.configuration, f"the configuration {files.configuration.name}")
        self._machine.step(BootStep.MEASURED)
        return measured

    def _verify(self, measured: _Measured, *, files: CardFiles, contents: Contents, secret: bytearray) -> None:
        manifest = _open(measured.manifest, path=files.manifest, contents=contents)
        self._add(PCR_VERSION, version_digest(manifest.version), f"the version {manifest.version}")
        self._add(PCR_CARD, name_digest(manifest.name), f"the card's name, {manifest.name}")
        _compare(measured, manifest, files=files, contents=contents, running=0)
        contents = self._contents = self._store.set_minimum_version(contents, version=manifest.version)
        self._store.unseal_into(secret, contents=contents)
        self._nsm = Nsm(self.pcrs, contents=contents, now=self._now)
        self._version = manifest.version
        self._machine.step(BootStep.AS_SIGNED)
        _log.info("card %s runs, version %d", manifest.name, manifest.version)

    def _add(self, index: int, digest: bytes, description: str) -> None:
        self._events.append(PcrEvent(index, digest, one_line(description)[:MAX_DESCRIPTION]))

    def _seal(self, error: Exception) -> None:
        if not isinstance(error, TrustError):
            _log.error("boot: internal error", exc_info=error)
            error = TrustError(f"internal error of the chip ({type(error).__name__}: {error}); see its log")
        self._machine.step(BootStep.FAULT)
        self._nsm, self._version = None, 0
        self._reason = one_line(str(error))
        _log.warning("SEALED: %s", self._reason)

    def _keep_record(self) -> None:
        record = {
            "at": self._booted_at and self._booted_at.isoformat(timespec="seconds"),
            "state": self.state.value,
            "reason": self._reason or None,
            "version": self._version or None,
            "events": [event.as_dict() for event in self._events],
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
    try:
        return open_manifest_untrusted(data, key=contents.vendor)
    except TrustError as error:
        raise TrustError(f"{path.name}: {error}") from error


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
