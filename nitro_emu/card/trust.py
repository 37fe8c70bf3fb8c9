"""What a card's virtual functions and its process share of keys, permissions and proofs; opened before anything else.

    with await CardTrust.open(config) as trust:
        vf = EfaFunction(config, trust=trust.of(config), ...)

With a security chip (`nitro_emu.chip`) opening is the measured boot: the chip measures the files of this software and
its settings, compares them with the signed manifest, and only then gives out the card's private key. Otherwise the key
is in a file. The key lies in locked memory that is wiped at the end; libcrypto keeps a copy of its own, which it wipes,
too.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NoReturn, Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from nitro_emu.card.config import AttestationFields, CardConfig, load
from nitro_emu.chip.client import ChipClient
from nitro_emu.chip.messages import CHIP_SOCKET, SECRET_BYTES
from nitro_emu.closing import Closing
from nitro_emu.errors import CardError, ConfigError, TrustError
from nitro_emu.peers.attestation import PeerAttestation
from nitro_emu.peers.mapping import VpcNetwork
from nitro_emu.peers.tenancy import OpenTenancy, PacketTenancy, Tenancy, VpcTenancy
from nitro_emu.peers.vf_config import VfConfig
from nitro_emu.peers.vf_trust import VfTrust
from nitro_emu.trust.alarms import Alarms
from nitro_emu.trust.confinement import confine, forbid_dumps
from nitro_emu.trust.egress import EgressGuard
from nitro_emu.trust.loaded import LoadGuard
from nitro_emu.trust.locked import LockedSecret
from nitro_emu.trust.manifest import MAX_MANIFEST_BYTES
from nitro_emu.trust.measure import read_file, software_root
from nitro_emu.trust.pki import certificate_pem, load_certificate_untrusted, load_public_key_untrusted
from nitro_emu.trust.verify import Expectation
from srd.secure.config import Keys, SecurityConfig
from srd.secure.key_log import VARIABLE as KEY_LOG
from srd.secure.keys import directory as key_directory
from srd.secure.noise import public_bytes

CHIP_FD: Final = "NITRO_CHIP_FD"
"""Environment variable with the descriptor of the connection to the chip, while an update replaces the process."""

_log: Final = logging.getLogger(__name__)


class CardTrust(Closing):
    """Keys, mapping, alarms, egress guard and attestation of one card."""

    def __init__(
        self,
        config: CardConfig,
        *,
        key: X25519PrivateKey | None,
        control_plane: EllipticCurvePublicKey | None,
        chip: ChipClient | None,
        required: Sequence[Expectation],
        alarms: Alarms,
        opened: ExitStack,
    ) -> None:
        """Take what `open` has opened."""
        self.config = config
        self.alarms = alarms
        self.guard = EgressGuard(self.alarms)
        self.network: VpcNetwork | None = None
        self.chip = chip
        self._key = key
        self._opened = opened
        self._is_updating = False
        self._attestation = PeerAttestation(
            attest=None if chip is None else chip.attest,
            required=required,
            count_refused=lambda reason: self.alarms.raise_alarm("attestation", reason),
        )
        self.guard.set_allowed(None)
        if control_plane is not None:
            version_file = config.audit_path.with_name(f"{config.name}.map-version")
            self.network = VpcNetwork(
                config.name, control_plane=control_plane, alarms=self.alarms, version_file=version_file
            )
            if all(vf.vpc is not None for vf in config.vfs):
                self.guard.set_allowed(frozenset())
                self.network.on_change(self._allow_cards)

    @classmethod
    async def open(cls, config: CardConfig) -> Self:
        """Boot with the chip, if there is one, and read the keys. Raises NitroError with the reason."""
        if config.confine:
            forbid_dumps()  # before there is a key in memory
        if config.chip is not None or config.control_plane is not None:
            _refuse_key_log()
        with ExitStack() as opened:
            control_plane = None if config.control_plane is None else _public_key(config.control_plane.key)
            required = () if config.require_attestation is None else _expectations(config.require_attestation)
            chip, key, alarms = None, None, Alarms()
            if config.chip is not None:
                LoadGuard(software_root(), on_refused=lambda reason: alarms.raise_alarm("image", reason))
                secret = LockedSecret(SECRET_BYTES)
                opened.callback(secret.close)
                chip = _connect(config.chip.directory)
                opened.callback(chip.close)
                key = await boot(chip, config, secret=secret)
            elif control_plane is not None:
                key = config.card_key()
            return cls(
                config, key=key, control_plane=control_plane, chip=chip, required=required, alarms=alarms,
                opened=opened.pop_all(),
            )  # fmt: skip

    def _allow_cards(self) -> None:
        if self.network is not None:
            self.guard.set_allowed(self.network.card_addresses)

    def card_key(self) -> X25519PrivateKey:
        """Return the card's private key, from its chip or its file. Raises ConfigError."""
        return self.config.card_key() if self._key is None else self._key

    def of(self, vf: VfConfig) -> VfTrust:
        """Return what a virtual function may do. Raises ConfigError for unusable keys."""
        security: SecurityConfig
        tenancy: Tenancy
        if vf.vpc is None or vf.private_address is None:
            security, tenancy = self.config.security_of(vf), OpenTenancy(vf.address, port=vf.port)
        elif self.network is None or self._key is None:
            raise CardError(f"{vf.name}: is in VPC {vf.vpc}, and this card has no control plane")
        else:
            security = Keys(private_key=self._key, authorized=self.network)
            tenancy = (PacketTenancy if vf.judges_packets else VpcTenancy)(
                self.network,
                vpc=vf.vpc,
                private_address=vf.private_address,
                port=vf.port,
                public_key=public_bytes(self._key),
            )
        return VfTrust(
            security=security,
            tenancy=tenancy,
            attestation=self._attestation,
            alarms=self.alarms,
            check_egress=self.guard.check,
            answers=self.guard.allows,
        )

    async def accept_update(self, manifest: Path) -> int:
        """Have the chip check a new manifest against the files as they are, and put it in place; return its version.

        Raises TrustError; nothing has changed then. The chip checks the copy that is put in place.
        """
        if self.chip is None or self.config.chip is None:
            raise TrustError("this card has no security chip, which checks updates: replace the files, and restart it")
        if self.config.confine:
            self._check_interfaces(load(_path(self.config)))
        if self._is_updating:
            raise TrustError("another update is being checked; wait for it")
        place = self.config.chip.manifest
        copy, configuration = place.with_name(f".{place.name}.new"), _path(self.config)
        self._is_updating = True
        try:
            copy.write_bytes(read_file(manifest, max_bytes=MAX_MANIFEST_BYTES))
            version = await self.chip.check_update(
                image_root=software_root(), manifest=copy, configuration=configuration
            )
            copy.replace(place)
        except OSError as error:
            raise TrustError(f"{place}: the manifest cannot be replaced: {error.strerror}") from error
        else:
            return version
        finally:
            self._is_updating = False
            with suppress(OSError):
                copy.unlink(missing_ok=True)

    def _check_interfaces(self, config: CardConfig) -> None:
        """Raise TrustError if new settings have an interface that is not kept: a confined process makes none."""
        before = {vf.name: vf.kept_settings for vf in self.config.vfs}
        for vf in config.vfs:
            if vf.kept_settings and vf.kept_settings != before.get(vf.name):
                raise TrustError(
                    f"{vf.name}: its interface is new or has other settings, and a confined process makes none; "
                    "restart the card"
                )

    def replacement(self) -> Callable[[], NoReturn]:
        """Return what replaces this process by the software that the manifest lists.

        The connection to the chip is handed on, as a confined process opens none. Raises TrustError, also when called.
        """
        if self.chip is None:
            raise TrustError("this card has no security chip")
        descriptor = self.chip.keep_over_exec()

        def replace() -> NoReturn:
            os.environ[CHIP_FD] = str(descriptor)
            try:
                os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the same program again
            except OSError as error:
                raise TrustError(f"{sys.executable}: cannot be executed: {error.strerror}; start the card") from error

        return replace

    def confine(self) -> list[str]:
        """Confine this process to what a card needs; return what was applied. Raises TrustError."""
        config = self.config
        if not config.confine:
            return ["nothing: the settings have confine: false"]
        directories = {config.run_dir, config.audit_path.parent, key_directory()}
        if config.chip is not None:
            directories.add(config.chip.manifest.parent)
        listens = config.metrics is not None or (
            config.control_plane is not None and config.control_plane.listen is not None
        )
        return confine(landlock_write=sorted(filter(Path.is_dir, directories)), tcp_sockets=listens)

    def status(self) -> dict[str, Any]:
        """Return what is known of it, without secrets."""
        return {
            "chip": None if self.chip is None else "run",
            "mapping": None if self.network is None else self.network.status(),
            "alarms": dict(self.alarms.counts),
        }

    def close(self) -> None:
        """Wipe the key, and end the connection to the chip."""
        self._opened.close()


def _refuse_key_log() -> None:
    """Raise TrustError if whoever starts the card would get the keys of its tenants' traffic in a file."""
    if os.environ.get(KEY_LOG):
        raise TrustError(f"{KEY_LOG} is set, which writes the keys of all peers to a file; unset it")


def _connect(directory: Path) -> ChipClient:
    """Return the connection to the chip; after an update the one that the process before had."""
    inherited = os.environ.pop(CHIP_FD, "")
    return ChipClient.from_fd(int(inherited)) if inherited.isdigit() else ChipClient.connect(directory / CHIP_SOCKET)


def _path(config: CardConfig) -> Path:
    if config.path is None:
        raise CardError("settings that are from no file cannot be measured; start the card with a YAML file")
    return config.path


async def boot(chip: ChipClient, config: CardConfig, *, secret: LockedSecret) -> X25519PrivateKey:
    """Have the chip measure this software and the card's settings; return the card's private key. Raises TrustError."""
    if config.chip is None:
        raise CardError("chip: is not set")
    report = await chip.boot(
        image_root=software_root(), manifest=config.chip.manifest, configuration=_path(config), secret=secret.view
    )
    if report.configuration.hex() != config.sha384:
        raise TrustError(f"{config.path}: has changed since it was read; start this again")
    _log.info("the chip has measured this card: version %d, PCR0 %s", report.version, report.pcrs[0].hex()[:16])
    return X25519PrivateKey.from_private_bytes(secret.view)


def _public_key(source: str | Path) -> EllipticCurvePublicKey:
    try:
        return load_public_key_untrusted(_pem(source), name="control_plane: key")
    except OSError as error:
        raise ConfigError(f"control_plane: key: {source}: {error.strerror}; nitro-vpc make-key makes one") from None
    except TrustError as error:
        raise ConfigError(f"{error}; nitro-vpc make-key makes one") from None


def _expectations(fields: AttestationFields) -> tuple[Expectation, ...]:
    """Return what is required of others, for each root. Raises ConfigError."""
    try:
        roots = x509.load_pem_x509_certificates(_pem(fields.root))
        for root in roots:
            load_certificate_untrusted(certificate_pem(root), name="require_attestation: root")
    except OSError as error:
        raise ConfigError(f"require_attestation: root: {fields.root}: {error.strerror}; see nitro-chip root") from None
    except (ValueError, TrustError) as error:
        raise ConfigError(f"require_attestation: root: {error}; see nitro-chip root") from None
    if not roots:
        raise ConfigError("require_attestation: root: has no certificate in PEM; see nitro-chip root")
    return tuple(Expectation(root=root, pcrs=fields.pcrs, at=None) for root in roots)


def _pem(source: str | Path) -> bytes:
    return source.read_bytes() if isinstance(source, Path) else source.encode()
