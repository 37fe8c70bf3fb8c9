"""The settings of a card, from a YAML file.

    name: card-a                # optional: the file's name without .yaml
    run_dir: /run/nitro-card-a  # optional
    vfs:
      - name: efa_0
        address: 10.0.1.1
      - name: efa_1
        address: 10.0.1.1
        port: 19876
        uid: 1000
        security: {mode: psk, psk_file: tenant.psk}

With a control plane virtual functions are interfaces in VPCs, and with a security chip the card proves what it runs:

    control_plane: {key: control-plane.pub.pem}
    chip: {directory: /run/nitro-chip-a, manifest: card-a.manifest}
    vfs:
      - {name: efa_0, address: 10.0.1.1, vpc: red, private_address: 172.31.0.5, bandwidth: 10gbit,
         packets_per_second: 1M}

Names of files are relative to the settings' file. Sizes, rates and counts are numbers (of bytes, of bits a second), or
texts such as 24M, 10gbit and 1M in the notation of netns.base.units. Every mistake is one line with file, key, value
and remedy: ConfigError. Only the first is reported.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final, Literal, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import Field, PrivateAttr, field_validator, model_validator

from netns.base.naming import named
from netns.base.unix_sockets import MAX_PATH_BYTES
from netns.base.yaml_file import MAX_FILE_BYTES, Strict, mapping_of, validated
from nitro_emu.card.kinds import AnyVfConfig
from nitro_emu.errors import ConfigError
from nitro_emu.fields import Directory, File, HostPort, Name, Pcr, Pem
from nitro_emu.peers.vf_config import VfConfig
from srd.errors import UsageError
from srd.secure.config import SecurityConfig
from srd.secure.keys import create, directory
from srd.secure.keys import load as load_key

DEFAULT_RUN_DIR: Final = Path("/run/nitro-card")

MAX_POLL_S: Final = 1.0
"""To poll for longer, set `busy_poll`."""


class ControlPlaneFields(Strict):
    """Who says which interfaces there are (`nitro-vpc`)."""

    key: Pem
    """The public key that its mappings are signed with: `nitro-vpc make-key` writes it to KEY.pub.pem. A file's name,
    or the PEM text itself; with a security chip the text, since the chip measures the settings and no other files."""

    listen: HostPort | None = None
    """ADDR:PORT at which mappings are accepted over TCP. Default: only at the control socket. A mapping proves by its
    signature where it comes from, so the connection needs no protection; it is not secret."""


class ChipFields(Strict):
    """The security chip that measures this card, and keeps its key (`nitro-chip`)."""

    directory: Directory
    """The chip's directory, with its socket."""

    manifest: File
    """The signed list of what the card may run: `nitro-chip sign-manifest` makes it."""


class AttestationFields(Strict):
    """What other cards have to prove before they are sent anything, or accepted."""

    root: Pem
    """The root certificates of their chips, one behind the other: `nitro-chip root` prints one. A file's name or the
    PEM text, as for `ControlPlaneFields.key`."""

    pcrs: dict[int, Pcr] = Field(default_factory=dict, strict=False)
    """Values that their measurements must have, by number: 0 is the software, 2 the settings."""

    @field_validator("pcrs")
    @classmethod
    def _check_pcrs(cls, value: dict[int, bytes]) -> dict[int, bytes]:
        for number in value:
            if not 0 <= number <= 31:
                raise ValueError(f"pcrs: {number} is no PCR; there are 0 to 31")
        return value


class CardConfig(Strict):
    """The settings of one card: a process that serves the virtual functions of a host."""

    name: Name
    """Name of the card, in messages and in the names of keys. Default: the file's name without .yaml."""

    run_dir: Directory = DEFAULT_RUN_DIR
    """Directory of the sockets: programs find devices there ($NITRO_CARD_DIR). /run is emptied at boot, as sockets must
    be. Two cards on one host, such as those of a lab, need different ones."""

    vfs: tuple[AnyVfConfig, ...] = Field(min_length=1, max_length=256, strict=False)
    """The virtual functions."""

    poll_s: float = Field(default=0.0005, ge=0, le=MAX_POLL_S)
    """How long the card polls doorbells after activity before it sleeps, in seconds; 0: not at all. Several times the
    cost of sleeping and being woken by an eventfd; the same as `srd`'s own `adaptive_poll_s`."""

    busy_poll: bool = False
    """Whether the card never sleeps. It uses a whole CPU, as a hardware card is one of its own, and saves the wake-up
    latency."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe records that are logged: the life of programs and resources, no packets."""

    metrics: HostPort | None = None
    """ADDR:PORT at which Prometheus metrics are served over HTTP. Default: nowhere, since a card opens no port that
    nobody asked for."""

    control_plane: ControlPlaneFields | None = None
    """Who says which interfaces there are. VFs in a VPC need it."""

    key_file: File | None = None
    """The card's private key, by which the mapping knows it, if there is no chip to keep it. Default: one that is made
    at the first start (see `CardConfig.card_key_file`)."""

    chip: ChipFields | None = None
    """The security chip. Without one, the card runs whatever it is, and cannot prove anything."""

    require_attestation: AttestationFields | None = None
    """What other cards have to prove. Default: nothing but their keys."""

    confine: bool = True
    """Whether the process gives up, once it serves, what it needs no more (`nitro_emu.trust.confinement`): debuggers
    and profilers cannot look at it. A live update does not take it back."""

    audit_log: Directory | None = None
    """File of the audit log. Default: beside the keys, since the run directory is emptied at boot."""

    _sha384: str = PrivateAttr(default="")
    _path: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check(self) -> Self:
        names: set[str] = set()
        sockets: dict[tuple[str, int], str] = {}
        for vf in self.vfs:
            if vf.name in names:
                raise ValueError(f"vfs: {vf.name} is the name of two; give each its own")
            names.add(vf.name)
            if (other := sockets.setdefault((vf.address, vf.port), vf.name)) != vf.name:
                raise ValueError(f"vfs: {other} and {vf.name} have both {vf.address} port {vf.port}; change one port")
        in_vpc = [vf.name for vf in self.vfs if vf.vpc is not None]
        if in_vpc and self.control_plane is None:
            raise ValueError(f"vfs: {in_vpc[0]} is in a VPC, and nobody maps it; give control_plane: with its key")
        if self.chip is not None:
            for name, pem in (
                ("control_plane.key", self.control_plane and self.control_plane.key),
                ("require_attestation.root", self.require_attestation and self.require_attestation.root),
            ):
                if isinstance(pem, Path):
                    text = f"{name}: the chip does not measure {pem}; write its text into the settings"
                    raise ValueError(text)  # noqa: TRY004 - for pydantic
        if self.key_file is not None and self.chip is not None:
            raise ValueError("key_file stands beside chip, which keeps the key; remove one of the two")
        without_keys = [vf.name for vf in self.vfs if vf.security.mode != "keys"]
        if self.require_attestation is not None and without_keys:
            raise ValueError(f"vfs: {without_keys[0]} has no keys, to which attestation is bound; set mode keys")
        longest = max(len(f"{name}.sock") for name in (*names, "control"))
        if (length := len(str(self.run_dir).encode())) > (most := MAX_PATH_BYTES - longest - 1):
            raise ValueError(
                f"run_dir: {self.run_dir} has {length} bytes; sockets there have at most {most}: shorten it"
            )
        return self

    def model_post_init(self, context: Any, /) -> None:
        """Keep the hash of the file that these settings come from."""
        self._sha384 = (context or {}).get("sha384", "")
        self._path = (context or {}).get("path")

    def with_run_dir(self, run_dir: Path) -> Self:
        """Return these settings with another run directory. Raises ConfigError."""
        context = {"sha384": self._sha384, "path": self._path}
        return validated(type(self), {**self.model_dump(), "run_dir": run_dir}, error=ConfigError, context=context)

    @property
    def sha384(self) -> str:
        """SHA-384 of the file in hexadecimal, for attestation; of these settings as JSON if they are from no file."""
        return self._sha384 or hashlib.sha384(self.model_dump_json().encode()).hexdigest()

    @property
    def path(self) -> Path | None:
        """The file that these settings come from, which a security chip measures."""
        return self._path

    @property
    def audit_path(self) -> Path:
        """The file of the audit log."""
        return self.audit_log or directory() / "cards" / self.name / "audit.log"

    @property
    def card_key_file(self) -> Path:
        """The file of the card's private key, if no chip keeps it."""
        return self.key_file or directory() / "cards" / self.name / "card.key"

    def key_directory(self, vf: VfConfig) -> Path:
        """Return where a VF's key and known hosts are by default: of the card's user, and of this VF alone."""
        return directory() / "cards" / self.name / vf.name

    def card_key(self) -> X25519PrivateKey:
        """Return the card's private key from its file; a missing default one is made. Raises ConfigError."""
        path = self.card_key_file
        with named("key_file: ", UsageError, error=ConfigError):
            return create(path) if self.key_file is None and not path.exists() else load_key(path)

    def security_of(self, vf: VfConfig) -> SecurityConfig:
        """Return the setting for a VF's endpoint; a missing default key is made. Raises ConfigError.

        Not for a VF in a VPC, whose security is the card's.
        """
        with named(f"{vf.name}: ", ConfigError):
            return vf.security.read(default_directory=self.key_directory(vf))


def load(path: Path) -> CardConfig:
    """Return the settings in a YAML file. Raises ConfigError with file, key, value and remedy."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as failure:
        raise ConfigError(f"{path}: cannot be read: {failure.strerror}; name the card's YAML file") from None
    context = {"base": path.parent, "sha384": hashlib.sha384(content).hexdigest(), "path": path.absolute()}
    with named(f"{path}: ", ConfigError):
        wanted = "holds no settings; give vfs: with a name and an address each"
        document = mapping_of(content, error=ConfigError, wanted=wanted)
        return validated(CardConfig, {"name": path.stem, **document}, error=ConfigError, context=context)
