"""What all virtual functions have in their settings, entries of `vfs` in a card's file: see `nitro_emu.card.config`."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from netns.base.yaml_file import Strict
from nitro_emu.errors import AbiError, ConfigError
from nitro_emu.fields import Count, File, Name, Rate, Size
from nitro_emu.gid import IPV6_PORT, gid_of
from nitro_emu.run_directory import CONTROL_SOCKET
from srd.errors import UsageError
from srd.io.allowance import MIN_BANDWIDTH_BPS, MIN_PACKETS_PER_SECOND, Allowance
from srd.io.rx_buffers import SUPER_BYTES, scratch_bytes
from srd.io.rx_memory import SLOTS
from srd.proto.config import MAX_PATHS
from srd.proto.wire.data import MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES
from srd.secure.config import Keys, Plain, Psk, SecurityConfig
from srd.secure.handshake import NO_PSK
from srd.secure.keys import create, read_authorized, read_psk
from srd.secure.keys import load as load_key

DEFAULT_PORT: Final = IPV6_PORT
"""UDP port of a VF. A GID of IPv6 is the address alone, so this is the only port of IPv6."""

MIN_MEMORY_BYTES: Final = 8 << 20
"""A receive region for a window of 2 MiB: less stalls a single sender at 10 Gbit/s and 1 ms."""

MAX_MEMORY_BYTES: Final = 4 << 30


class SecurityFields(Strict):
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


class VfConfig(Strict):
    """What the settings of a virtual function of any kind have: a tenant's interface, a device of its own."""

    judges_packets: ClassVar[bool] = False
    """Whether security groups are asked about each packet, and not about the peer."""

    name: Name
    """Name of the device, which its socket in the run directory is called after. The kernel's driver says efa_0."""

    kind: str
    """What it is for its tenant: see `nitro_emu.card.kinds`."""

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
    """UDP source ports that a peer's packets are sprayed over, each a socket: 8 ports use three of four equal links
    with a probability of 96 %."""

    mtu: int | None = Field(default=None, ge=MIN_DATAGRAM_BYTES, le=MAX_DATAGRAM_BYTES)
    """Largest datagram in bytes. Default: what the route to the peer carries."""

    memory_bytes: Size = Field(default=24 << 20, ge=MIN_MEMORY_BYTES, le=MAX_MEMORY_BYTES)
    """The receive region, in which payload lies before it is copied to a posted buffer or to registered memory. The
    card copies at once, so the window covers the bandwidth-delay product only: 9 MiB are 75 Gbit/s at 1 ms."""

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
        if ":" in self.address and self.port != DEFAULT_PORT:
            raise ValueError(f"port: {self.port} is not {DEFAULT_PORT}, which IPv6 always has; use another address")
        try:
            gid_of(self.address, port=self.port)
        except AbiError as error:
            raise ValueError(f"address: {error}; give an address of this host") from error
        return self

    @property
    def kept_settings(self) -> str:
        """What the kernel was told of what a live update keeps, as text; empty: nothing is kept."""
        return ""

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
