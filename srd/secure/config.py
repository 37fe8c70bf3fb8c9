"""Who an endpoint talks to, and how: the settings of `EndpointConfig.security`."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from srd.proto.base.errors import UsageError
from srd.proto.base.security import CredentialCheck, SecurityMode
from srd.secure.certificates import (
    INITIATOR,
    RESPONDER,
    Authorities,
    certificate_in,
    key_of_untrusted,
    names_of,
    parse_untrusted,
    read_authorities,
    utc_now,
)
from srd.secure.handshake import NO_PSK, PSK_BYTES, Handshakes
from srd.secure.key_log import secret_log
from srd.secure.keys import directory, fingerprint, private_key_in, read_secret, user_key
from srd.secure.known_hosts import KnownHosts
from srd.secure.noise import public_bytes


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the other end of a peer is, as far as the handshake has shown."""

    mode: SecurityMode
    public_key: bytes = b""
    """Its own, with `Keys` and `Cert`; else empty."""
    names: tuple[str, ...] = ()
    """Host names and addresses in its certificate, with `Cert`."""

    @property
    def fingerprint(self) -> str:
        """How people compare the key; empty without one."""
        return fingerprint(self.public_key) if self.public_key else ""


class Trust:
    """What an endpoint has opened for its security: the handshakes, and the hosts that it knows."""

    def __init__(
        self,
        mode: SecurityMode,
        handshakes: Handshakes | None = None,
        *,
        known_hosts: KnownHosts | None = None,
        authorities: Authorities | None = None,
    ) -> None:
        self.mode = mode
        self.handshakes = handshakes
        self.known_hosts = known_hosts
        self._authorities = authorities

    def credential_check(self, host: str, *, name: str, expected: str | None) -> CredentialCheck | None:
        """Return the check of the credential of a host. `expected`: its key's fingerprint, if that is known.

        `name`: host and port, as the known hosts have it. Raises UsageError for a fingerprint where it proves nothing.
        """
        if expected is not None:
            if self.mode is not SecurityMode.KEYS:
                raise UsageError(f"{name}: a fingerprint needs security by keys; this endpoint has {self.mode.name}")
            return lambda key: None if fingerprint(key) == expected else f"has another key than {expected}"
        hosts, authorities = self.known_hosts, self._authorities
        if authorities is not None:
            return lambda der: authorities.refusal_untrusted(der, use=RESPONDER, host=host, now=utc_now())
        return None if hosts is None else lambda key: _refusal_by_hosts(hosts, name, key)

    @property
    def own_identity(self) -> Identity:
        """What other ends see of this one."""
        if self.handshakes is None or self.mode is SecurityMode.PSK:
            return self.identity(b"")
        return self.identity(self.handshakes.credential)

    def identity(self, credential: bytes) -> Identity:
        """Return the identity of a peer with a valid credential."""
        if credential and self.mode is SecurityMode.CERT:
            return Identity(self.mode, key_of_untrusted(credential), names_of(parse_untrusted(credential)))
        return Identity(self.mode, credential)


def _refusal_by_hosts(hosts: KnownHosts, name: str, key: bytes) -> str | None:
    """Return why a key is not that of a known host. A file that cannot be read refuses all, and ends no endpoint."""
    try:
        return hosts.check(name, key)
    except UsageError as error:
        return str(error)


@dataclass(frozen=True, slots=True)
class Plain:
    """Nothing is encrypted, and nobody is known: for networks that are trusted, and for comparisons."""

    def open(self, *, socket_id: bytes) -> Trust:
        """Return what an endpoint needs; `socket_id`: see `srd.io.socket`."""
        del socket_id
        return Trust(SecurityMode.PLAIN)


@dataclass(frozen=True, slots=True)
class Psk:
    """Both ends know a symmetric key; whoever has it is trusted."""

    key: bytes
    """32 bytes: random ones, or of a passphrase (`srd.secure.keys.psk_of`)."""

    def __post_init__(self) -> None:
        """Check the length. Raises UsageError."""
        if len(self.key) != PSK_BYTES:
            raise UsageError(f"key: {len(self.key)} bytes are no symmetric key; it has {PSK_BYTES}")

    def __repr__(self) -> str:
        """Return a text without the key."""
        return "Psk(...)"

    def open(self, *, socket_id: bytes) -> Trust:
        """Return what an endpoint needs; `socket_id`: see `srd.io.socket`."""
        static = X25519PrivateKey.generate()
        handshakes = Handshakes(
            SecurityMode.PSK, static=static, psk=self.key, socket_id=socket_id, log_secret=secret_log()
        )
        return Trust(SecurityMode.PSK, handshakes)


@dataclass(frozen=True, slots=True)
class Keys:
    """Each end has a key pair, as with SSH. Without settings: this user's key, and trust on first use."""

    private_key: X25519PrivateKey | None = None
    """This end's; None: this user's, in `srd.secure.keys.directory()`, made at the first use."""

    known_hosts: Path | None = None
    """The file of the responders' keys; None: this user's, in the same directory."""

    authorized: Container[bytes] | None = None
    """Public keys of the initiators that may open a peer; None: any. Others are refused in the handshake. It is asked
    for each new peer, so it may change."""

    psk: bytes = NO_PSK
    """A symmetric key that both ends must have as well, 32 bytes; it holds where X25519 is broken one day (by a quantum
    computer). Zeros: none."""

    def __post_init__(self) -> None:
        """Check the length. Raises UsageError."""
        if len(self.psk) != PSK_BYTES:
            raise UsageError(f"psk: {len(self.psk)} bytes are no symmetric key; it has {PSK_BYTES}")

    def __repr__(self) -> str:
        """Return a text without secrets."""
        return f"Keys(known_hosts={self.known_hosts}, authorized={self.authorized is not None})"

    def open(self, *, socket_id: bytes) -> Trust:
        """Return what an endpoint needs; `socket_id`: see `srd.io.socket`. Raises UsageError for unusable files."""
        static = self.private_key or user_key()
        authorized = self.authorized
        handshakes = Handshakes(
            SecurityMode.KEYS,
            static=static,
            psk=self.psk,
            socket_id=socket_id,
            authorize=None if authorized is None else authorized.__contains__,
            log_secret=secret_log(),
        )
        hosts = KnownHosts(self.known_hosts or directory() / "known_hosts", own_key=public_bytes(static))
        return Trust(SecurityMode.KEYS, handshakes, known_hosts=hosts)


@dataclass(frozen=True, slots=True)
class Cert:
    """Each end has a certificate of its key (X.509) by an authority that the other end trusts."""

    private_key: X25519PrivateKey
    certificate: bytes
    """Of this key, in DER (`srd.secure.certificates.certificate_in` reads PEM). A responder's names its host."""
    authorities: Authorities
    """Who may certify the other end (`srd.secure.certificates.read_authorities`)."""

    def __post_init__(self) -> None:
        """Check that key and certificate are a pair. Raises UsageError."""
        if key_of_untrusted(self.certificate) != public_bytes(self.private_key):
            raise UsageError("certificate: is not of this private key; give the two that belong together")

    @classmethod
    def read(cls, path: Path, *, authorities: Path) -> Cert:
        """Read certificate and private key from one PEM file, and the authorities from another. Raises UsageError."""
        text = read_secret(path)
        return cls(private_key_in(text, path), certificate_in(text, path), read_authorities(authorities))

    def __repr__(self) -> str:
        """Return a text without the key."""
        return f"Cert({', '.join(names_of(parse_untrusted(self.certificate)))})"

    def open(self, *, socket_id: bytes) -> Trust:
        """Return what an endpoint needs; `socket_id`: see `srd.io.socket`."""
        authorities = self.authorities
        handshakes = Handshakes(
            SecurityMode.CERT,
            static=self.private_key,
            certificate=self.certificate,
            socket_id=socket_id,
            authorize=lambda der: authorities.refusal_untrusted(der, use=INITIATOR, host=None, now=utc_now()) is None,
            log_secret=secret_log(),
        )
        return Trust(SecurityMode.CERT, handshakes, authorities=authorities)


SecurityConfig = Plain | Psk | Keys | Cert
