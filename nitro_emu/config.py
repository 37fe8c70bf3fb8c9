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
texts such as 24M, 10gbit and 1M in the notation of netns.units. Every mistake is one line with file, key, value and
remedy: ConfigError. Only the first is reported.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from netns.units import parse_count, parse_rate_bps, parse_size
from nitro_emu.abi.gid import IPV6_PORT, gid_of
from nitro_emu.errors import AbiError, ConfigError
from nitro_emu.vpc.fields import Cidr
from nitro_emu.yaml_file import MAX_FILE_BYTES, Position, first_mistake, mapping_of
from srd.errors import UsageError
from srd.io.allowance import MIN_BANDWIDTH_BPS, MIN_PACKETS_PER_SECOND, Allowance
from srd.io.rx_buffers import SUPER_BYTES, scratch_bytes
from srd.io.rx_memory import SLOTS
from srd.proto.config import MAX_PATHS
from srd.proto.wire.data import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES
from srd.secure.config import Keys, Plain, Psk, SecurityConfig
from srd.secure.handshake import NO_PSK
from srd.secure.keys import create, directory, read_authorized, read_psk
from srd.secure.keys import load as load_key
from srd.tunnel.config import MAX_MTU, MIN_MTU
from srd.tunnel.tun import MAX_NAME_BYTES

DEFAULT_RUN_DIR: Final = Path("/run/nitro-card")

DEFAULT_PORT: Final = IPV6_PORT
"""UDP port of a VF. A GID of IPv6 is the address alone, so this is the only port of IPv6."""

CONTROL_SOCKET: Final = "control.sock"
"""The control socket's name in the run directory."""

MAX_SOCKET_PATH_BYTES: Final = 107
"""Of a Unix socket: sockaddr_un.sun_path has 108 with the terminating zero."""

MIN_MEMORY_BYTES: Final = 8 << 20
"""A receive region for a window of 2 MiB: less stalls a single sender at 10 Gbit/s and 1 ms."""

MAX_MEMORY_BYTES: Final = 4 << 30

MAX_POLL_S: Final = 1.0
"""To poll for longer, set `busy_poll`."""

PCR_BYTES: Final = 48
"""SHA-384."""

_NAME: Final = r"[a-z0-9_-]{1,32}"


def _of_text(parse: Callable[[str], int]) -> Callable[[object], object]:
    """Return a validator of amounts in netns.units' notation; what is no text stays as it is, for pydantic to check."""
    return lambda value: parse(value) if isinstance(value, str) else value


def _file_untrusted(value: object, info: ValidationInfo) -> object:
    """Return a file's name as a path, relative to the settings' file."""
    if not isinstance(value, str):
        return value
    if not value or "\0" in value:
        raise ValueError(f"{value!r} is no name of a file; give one, or leave the key out")
    base: Path = (info.context or {}).get("base", Path())
    return base / value


def _directory_untrusted(value: object) -> object:
    """Return a directory's name as a path, which must not depend on where the card is started."""
    if not isinstance(value, str | Path) or not Path(value).is_absolute() or "\0" in str(value):
        raise ValueError(f"{str(value)!r} is no absolute path; give one, such as {DEFAULT_RUN_DIR}")
    return Path(value)


def _pcr_untrusted(value: object) -> object:
    """Return a PCR's value from its hexadecimal digits."""
    if not isinstance(value, str) or len(value) != 2 * PCR_BYTES or not set(value) <= set("0123456789abcdefABCDEF"):
        raise ValueError(f"{str(value)[:100]!r} is no PCR; give {2 * PCR_BYTES} hexadecimal digits in quotes")
    return bytes.fromhex(value)


def _pem_untrusted(value: object, info: ValidationInfo) -> object:
    """Return PEM text as it is, and anything else as a file's name."""
    if isinstance(value, str) and value.startswith("-----BEGIN "):
        return value
    return _file_untrusted(value, info)


Name = Annotated[str, Field(pattern=f"^{_NAME}$")]
Rate = Annotated[int, BeforeValidator(_of_text(parse_rate_bps))]
Count = Annotated[int, BeforeValidator(_of_text(parse_count))]
Pcr = Annotated[bytes, BeforeValidator(_pcr_untrusted), PlainSerializer(bytes.hex)]
Size = Annotated[int, BeforeValidator(_of_text(parse_size))]
Pem = Annotated[str | Path, BeforeValidator(_pem_untrusted)]
File = Annotated[Path, BeforeValidator(_file_untrusted)]
Directory = Annotated[Path, BeforeValidator(_directory_untrusted)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class SecurityFields(_Strict):
    """How a VF's peers are encrypted and known; see `srd.secure.config`."""

    mode: Literal["plain", "psk", "keys"] = "keys"
    """Encrypted, and with trust on first use, unless the administrator says otherwise: as SSH, and as `srd`. Both ends
    must have the same."""

    psk_file: File | None = None
    """A symmetric key or a passphrase. With `psk` it is required; with `keys` it is used in addition to them."""

    key_file: File | None = None
    """With `keys`: this VF's private key; `srd keygen` makes one. Default: a key of its own that is made at the first
    start, since tenants share no keys (see `CardConfig.key_directory`)."""

    known_hosts: File | None = None
    """With `keys`: the public keys of other VFs. Default: a file beside the default key."""

    authorized_keys: File | None = None
    """With `keys`: who may open a peer to this VF, a public key a line. Default: anyone, as the packets of a peer only
    reach a queue pair whose number and qkey it knows."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.mode == "psk" and self.psk_file is None:
            raise ValueError("mode psk needs psk_file; make one with: srd keygen --psk FILE")
        unused = {
            "plain": ("psk_file", "key_file", "known_hosts", "authorized_keys"),
            "psk": ("key_file", "known_hosts", "authorized_keys"),
            "keys": (),
        }
        for name in unused[self.mode]:
            if getattr(self, name) is not None:
                raise ValueError(f"{name} stands beside mode {self.mode}, which does not use it; remove one of the two")
        return self

    def read(self, *, default_directory: Path) -> SecurityConfig:
        """Return the setting for an endpoint, with the keys in the files. Raises ConfigError.

        `default_directory`: where key and known hosts are if no file is named; the key is made if it is missing.
        """
        try:
            if self.mode == "plain":
                return Plain()
            psk = None if self.psk_file is None else read_psk(self.psk_file)
            if self.mode == "psk" and psk is not None:
                return Psk(psk)
            default_key = default_directory / "key"
            key_file = self.key_file or default_key
            key = create(key_file) if key_file == default_key and not key_file.exists() else load_key(key_file)
            authorized = None if self.authorized_keys is None else read_authorized(self.authorized_keys)
            known_hosts = self.known_hosts or default_directory / "known_hosts"
            return Keys(private_key=key, known_hosts=known_hosts, authorized=authorized, psk=psk or NO_PSK)
        except UsageError as error:
            raise ConfigError(f"security: {error}") from error


class ControlPlaneFields(_Strict):
    """Who says which interfaces there are (`nitro-vpc`)."""

    key: Pem
    """The public key that its mappings are signed with: `nitro-vpc make-key` writes it to KEY.pub.pem. A file's name,
    or the PEM text itself; with a security chip the text, since the chip measures the settings and no other files."""

    listen: str | None = None
    """ADDR:PORT at which mappings are accepted over TCP. Default: only at the control socket. A mapping proves by its
    signature where it comes from, so the connection needs no protection; it is not secret."""

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str | None) -> str | None:
        if value is not None:
            _host_port(value)
        return value

    @property
    def listen_address(self) -> tuple[str, int] | None:
        """Host and port, or None."""
        return None if self.listen is None else _host_port(self.listen)


class ChipFields(_Strict):
    """The security chip that measures this card, and keeps its key (`nitro-chip`)."""

    directory: Directory
    """The chip's directory, with its socket."""

    manifest: File
    """The signed list of what the card may run: `nitro-chip sign-manifest` makes it."""


class AttestationFields(_Strict):
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


class InterfaceFields(_Strict):
    """A tenant's network interface: that of a virtual function of kind `ena-express`."""

    subnet: Cidr
    """The subnet of the VPC that the private address is in; the kernel routes it to the interface."""

    routes: tuple[Cidr, ...] = Field(default=(), max_length=64, strict=False)
    """Further networks that are routed to it: other subnets of the VPC, and of peered ones."""

    netns: Annotated[str, Field(pattern="^[a-zA-Z0-9_.-]{1,255}$")] | Annotated[int, Field(ge=1)] | None = None
    """The network namespace in which it is: a name, as `ip netns add` makes it, or the id of a process in it. Default:
    the card's own."""

    name: str | None = Field(default=None, pattern="^[a-zA-Z0-9_.-]{1,15}$")
    """Its name in the kernel. Default: that of the virtual function."""

    mtu: int = Field(default=8900, ge=MIN_MTU, le=MAX_MTU)
    """Longest packet. AWS recommends 8900 with ENA Express; TCP's super-packets are longer in any case."""

    max_flows: Count = Field(default=65_536, ge=64, le=1 << 20)
    """Flows that are tracked: 500 bytes each. What would be more counts in `conntrack_allowance_exceeded`."""


class VfConfig(_Strict):
    """The settings of one virtual function: a tenant's interface, a device of its own."""

    name: Name
    """Name of the device, which its socket in the run directory is called after. The kernel's driver says efa_0."""

    kind: Literal["efa", "ena-express"] = "efa"
    """An RDMA device for programs that use verbs, or a network interface for all others: with `interface`, in a VPC."""

    interface: InterfaceFields | None = None
    """Of kind `ena-express`."""

    address: str
    """IP address of this host that the VF sends from and receives at. It must be one address, as it is in the GID."""

    port: int = Field(default=DEFAULT_PORT, ge=1, le=65535)
    """UDP port. VFs of one address need different ones; with IPv6 it is always the default, as a GID has no room for
    it: give each VF an address then."""

    uid: int | None = Field(default=None, ge=0, lt=(1 << 32) - 1)
    """The user who may open the device, besides root. Default: the card's own user."""

    security: SecurityFields = SecurityFields()
    """How peers are encrypted and known. In a VPC it is not set: keys are those of the cards in the mapping."""

    vpc: Name | None = None
    """The VPC in which this VF is an interface. Default: none; its address is the GID, and everybody may reach it."""

    private_address: str | None = None
    """Its address in the VPC, which its tenant sees. Other VPCs may have the same."""

    bandwidth: Rate | None = Field(default=None, ge=MIN_BANDWIDTH_BPS)
    """The most bits a second, in each direction. Default: no limit. What is more waits, and counts in
    `bw_in_allowance_exceeded` and `bw_out_allowance_exceeded`."""

    packets_per_second: Count | None = Field(default=None, ge=MIN_PACKETS_PER_SECOND)
    """The most packets a second, in each direction; `pps_allowance_exceeded`."""

    paths: int = Field(default=8, ge=1, le=MAX_PATHS)
    """UDP source ports that a peer's packets are sprayed over, each a socket: 256 VFs fit into the usual 4,096
    descriptors of a process, and 8 ports use three of four equal links with a probability of 96 %."""

    mtu: int | None = Field(default=None, ge=MIN_DATAGRAM_BYTES, le=MAX_DATAGRAM_BYTES)
    """Largest datagram in bytes. Default: what the route to the peer carries."""

    max_qps: int = Field(default=256, ge=1, le=1 << 15)
    """Queue pairs. A number has 16 bits; half of them are left for the generations of a number. EFA has 256 a VF."""

    max_cqs: int = Field(default=512, ge=1, le=1 << 15)
    """Completion queues: two a queue pair."""

    max_mrs: int = Field(default=4096, ge=1, le=1 << 18)
    """Memory registrations. Each is a mapping of the card's, of which a process has 65,530 (vm.max_map_count)."""

    max_pds: int = Field(default=256, ge=1, le=1 << 15)
    """Protection domains: one a queue pair at most."""

    max_ahs: int = Field(default=4096, ge=1, le=(1 << 16) - 1)
    """Address handles, as many as an endpoint has peers. A number has 16 bits, and 0xFFFF means unknown."""

    max_connections: int = Field(default=64, ge=1, le=4096)
    """Programs that have the device open at the same time: a rank for each core of a large host."""

    memory_bytes: Size = Field(default=24 << 20, ge=MIN_MEMORY_BYTES, le=MAX_MEMORY_BYTES)
    """The receive region, in which payload lies before it is copied to a posted buffer or to registered memory. The
    card copies at once, so the window covers the bandwidth-delay product only: 9 MiB are 75 Gbit/s at 1 ms."""

    max_mr_bytes: Size = Field(default=8 << 30, ge=4096, lt=1 << 63)
    """Registered memory of all programs together. It is theirs, and mapped by the card: the bound is on page tables."""

    @field_validator("address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        try:
            address = ipaddress.ip_address(value)
        except ValueError:
            raise ValueError(f"{value!r} is no IP address; give one of this host, such as 10.0.1.1") from None
        if address.is_unspecified or address.is_multicast:
            raise ValueError(f"{value} is no address of an interface; a GID names one, so give one of this host")
        if isinstance(address, ipaddress.IPv6Address) and (address.is_link_local or address.ipv4_mapped is not None):
            raise ValueError(f"{value}: a GID of that form means an IPv4 address; give a global or unique local one")
        return str(address)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name == CONTROL_SOCKET.removesuffix(".sock"):
            raise ValueError(f"name: {self.name!r} is the control socket's; give another")
        if (self.vpc is None) is not (self.private_address is None):
            raise ValueError("vpc and private_address belong together; give both, or none")
        if self.vpc is not None and self.security != SecurityFields():
            raise ValueError(f"security stands beside vpc {self.vpc}, whose keys are the cards'; remove it")
        if self.private_address is not None:
            try:
                gid_of(self.private_address, port=IPV6_PORT)
            except AbiError as error:
                raise ValueError(f"private_address: {error}; give an address of the VPC's subnet") from error
        self._check_kind()
        if ":" in self.address and self.port != DEFAULT_PORT:
            raise ValueError(f"port: {self.port} is not {DEFAULT_PORT}, which IPv6 always has; use another address")
        try:
            gid_of(self.address, port=self.port)
        except AbiError as error:
            raise ValueError(f"address: {error}; give an address of this host") from error
        return self

    def _check_kind(self) -> None:
        if self.interface is None:
            if self.kind == "ena-express":
                raise ValueError("kind ena-express needs interface: with its subnet")
            return
        if self.kind != "ena-express":
            raise ValueError(f"interface stands beside kind {self.kind}, which has none; remove one of the two")
        if self.private_address is None:
            raise ValueError("kind ena-express needs vpc and private_address, by whose rules its packets go")
        if ipaddress.ip_address(self.private_address) not in ipaddress.ip_network(self.interface.subnet):
            raise ValueError(f"interface.subnet: {self.interface.subnet} does not have {self.private_address}")
        if len(self.interface.name or self.name) > MAX_NAME_BYTES:
            raise ValueError(
                f"name: {self.name} has more than {MAX_NAME_BYTES} characters; give interface.name a shorter one"
            )

    @property
    def allowance(self) -> Allowance | None:
        """What the tenant may send and receive; None: anything."""
        if self.bandwidth is None and self.packets_per_second is None:
            return None
        return Allowance(bandwidth_bps=self.bandwidth, packets_per_second=self.packets_per_second)

    @property
    def chunk_bytes(self) -> int:
        """The unit in which the receive region is reused (`srd.config.EndpointConfig.chunk_bytes`)."""
        largest = 1 << (self.memory_bytes // 96).bit_length() - 1  # a sixth of the region for the chunks of the slots
        return min(max(2 * SUPER_BYTES, largest), 512 << 10)

    @property
    def receive_window_bytes(self) -> int:
        """Bytes that a peer may have outstanding, which fit into the region twice, as EndpointConfig demands."""
        rest = self.memory_bytes - (SLOTS + 1) * self.chunk_bytes - scratch_bytes(SLOTS)
        return rest // 2 & -SUPER_BYTES


class CardConfig(_Strict):
    """The settings of one card: a process that serves the virtual functions of a host."""

    name: Name
    """Name of the card, in messages and in the names of keys. Default: the file's name without .yaml."""

    run_dir: Directory = DEFAULT_RUN_DIR
    """Directory of the sockets: programs find devices there ($NITRO_CARD_DIR). /run is emptied at boot, as sockets must
    be. Two cards on one host, such as those of a lab, need different ones."""

    vfs: tuple[VfConfig, ...] = Field(min_length=1, max_length=256, strict=False)
    """The virtual functions."""

    poll_s: float = Field(default=0.0005, ge=0, le=MAX_POLL_S)
    """How long the card polls doorbells after activity before it sleeps, in seconds; 0: not at all. Several times the
    cost of sleeping and being woken by an eventfd; the same as `srd`'s own `adaptive_poll_s`."""

    busy_poll: bool = False
    """Whether the card never sleeps. It uses a whole CPU, as a hardware card is one of its own, and saves the wake-up
    latency."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe records that are logged: the life of programs and resources, no packets."""

    metrics: str | None = None
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

    @field_validator("metrics")
    @classmethod
    def _check_metrics(cls, value: str | None) -> str | None:
        if value is not None:
            _host_port(value)
        return value

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
        if (length := len(str(self.run_dir).encode())) > (most := MAX_SOCKET_PATH_BYTES - longest - 1):
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
        try:
            return self.model_validate(
                {**self.model_dump(), "run_dir": run_dir}, context={"sha384": self._sha384, "path": self._path}
            )
        except ValidationError as error:
            raise ConfigError(first_mistake(error, known_keys=_known_keys)) from None

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

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of the metrics, or None."""
        return None if self.metrics is None else _host_port(self.metrics)

    def key_directory(self, vf: VfConfig) -> Path:
        """Return where a VF's key and known hosts are by default: of the card's user, and of this VF alone."""
        return directory() / "cards" / self.name / vf.name

    def card_key(self) -> X25519PrivateKey:
        """Return the card's private key from its file; a missing default one is made. Raises ConfigError."""
        path = self.card_key_file
        try:
            return create(path) if self.key_file is None and not path.exists() else load_key(path)
        except UsageError as error:
            raise ConfigError(f"key_file: {error}") from error

    def security_of(self, vf: VfConfig) -> SecurityConfig:
        """Return the setting for a VF's endpoint; a missing default key is made. Raises ConfigError.

        Not for a VF in a VPC, whose security is the card's.
        """
        try:
            return vf.security.read(default_directory=self.key_directory(vf))
        except ConfigError as error:
            raise ConfigError(f"{vf.name}: {error}") from error


def _host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        number = -1
    if not 0 <= number <= 65535 or (":" in host) is not host.startswith("["):
        raise ValueError(f"{text!r} is not ADDR:PORT, such as 127.0.0.1:9100 or [::1]:9100")
    return str(address), number


def load(path: Path) -> CardConfig:
    """Return the settings in a YAML file. Raises ConfigError with file, key, value and remedy."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as failure:
        raise ConfigError(f"{path}: cannot be read: {failure.strerror}; name the card's YAML file") from None
    context = {"base": path.parent, "sha384": hashlib.sha384(content).hexdigest(), "path": path.absolute()}
    try:
        document = mapping_of(content, wanted="holds no settings; give vfs: with a name and an address each")
        return CardConfig.model_validate({"name": path.stem, **document}, context=context)
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_mistake(error, known_keys=_known_keys)}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


_PARTS: Final[dict[str, type[BaseModel]]] = {
    "security": SecurityFields,
    "interface": InterfaceFields,
    "control_plane": ControlPlaneFields,
    "chip": ChipFields,
    "require_attestation": AttestationFields,
}


def _known_keys(position: Position) -> Sequence[str]:
    """Return the keys of the part of the file at `position`, where an unknown one was found."""
    if not position:
        return list(CardConfig.model_fields)
    return list(_PARTS.get(str(position[-1]), VfConfig).model_fields)
