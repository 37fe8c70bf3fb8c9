"""Shared by the tests of the handshake: two cores, and the packets between them, one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from ipaddress import ip_address
from random import Random

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier

from srd.proto.base.security import CredentialCheck, SecurityMode
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.core import EndpointCore
from srd.proto.endpoint.peer import PeerCore
from srd.proto.events import PeerEnded, PeerOpened
from srd.proto.wire.control import Datagram
from srd.secure.certificates import INITIATOR, RESPONDER, Authorities
from srd.secure.handshake import Handshakes

NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PSK = bytes(range(32))
CONFIG = ProtocolConfig(paths=1)


@cache
def static(name: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())


@cache
def authority_key(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32, b"!"))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@cache
def authority(
    name: str = "authority", *, is_ca: bool = True, from_days: int = -10, to_days: int = 10
) -> x509.Certificate:
    """A self-signed certificate."""
    key = authority_key(name)
    builder = x509.CertificateBuilder().subject_name(_name(name)).issuer_name(_name(name))
    builder = builder.public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(NOW + from_days * DAY).not_valid_after(NOW + to_days * DAY)
    builder = builder.add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    return builder.sign(key, algorithm=None)


@cache
def certificate(
    owner: str,
    *,
    names: tuple[str, ...] = (),
    issuer: str = "authority",
    from_days: int = -1,
    to_days: int = 1,
    uses: tuple[ObjectIdentifier, ...] = (),
    critical: str = "",
) -> bytes:
    """A certificate of the static key of `owner`, in DER."""
    builder = x509.CertificateBuilder().subject_name(_name(owner)).issuer_name(_name(issuer))
    builder = builder.public_key(static(owner).public_key()).serial_number(2)
    builder = builder.not_valid_before(NOW + from_days * DAY).not_valid_after(NOW + to_days * DAY)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
    if uses:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    if critical:
        unknown = x509.UnrecognizedExtension(ObjectIdentifier(critical), b"\5\0")
        builder = builder.add_extension(unknown, critical=True)
    return builder.sign(authority_key(issuer), algorithm=None).public_bytes(Encoding.DER)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


AUTHORITIES = Authorities((authority(),))


def security(
    mode: SecurityMode, name: str, *, psk: bytes | None = None, only: frozenset[bytes] | None = None
) -> Handshakes | None:
    """The handshakes of an end whose static key is that of `name`. `only`: who may open a peer, with keys."""
    if mode is SecurityMode.PLAIN:
        return None
    default = PSK if mode is SecurityMode.PSK else bytes(32)
    if mode is SecurityMode.CERT:
        return Handshakes(
            mode,
            static=static(name),
            certificate=certificate(name, names=("b",)),
            socket_id=b"1",
            authorize=lambda der: AUTHORITIES.refusal_untrusted(der, use=INITIATOR, host=None, now=NOW) is None,
        )
    authorize = None if only is None else only.__contains__
    return Handshakes(mode, static=static(name), psk=psk or default, socket_id=b"1", authorize=authorize)


def check_of(mode: SecurityMode, expected: Handshakes | None) -> CredentialCheck | None:
    """What an initiator demands of the responder that has `expected`."""
    if mode is SecurityMode.CERT:
        return lambda der: AUTHORITIES.refusal_untrusted(der, use=RESPONDER, host="b", now=NOW)
    if mode is SecurityMode.KEYS:
        key = b"" if expected is None else expected.credential
        return lambda found: None if found == key else "b has another key"
    return None


@dataclass
class End:
    """A core, and what it has sent and nobody has taken yet."""

    name: str
    core: EndpointCore
    opened: list[PeerCore] = field(default_factory=list)
    ended: list[PeerEnded] = field(default_factory=list)

    def poll(self, now: float) -> list[bytes]:
        """Return what it sends now."""
        out = []
        while (sent := self.core.poll_transmit(now)) is not None:
            assert isinstance(sent, Datagram)
            out.append(sent.data)
        while (event := self.core.poll_event()) is not None:
            if isinstance(event, PeerOpened):
                self.opened.append(self.core.peer(event.peer))
                self.core.accepted(event.peer)
            elif isinstance(event, PeerEnded):
                self.ended.append(event)
        return out

    def take(self, data: bytes, *, now: float, source: str = "") -> list[bytes]:
        """Process a packet; return what it sends."""
        self.core.handle_packets([], controls=[(data, source or ("b:0" if self.name == "a" else "a:0"), now)], now=now)
        return self.poll(now)


def end(name: str, handshakes: Handshakes | None, *, seed: int = 1, config: ProtocolConfig = CONFIG) -> End:
    rng = Random(f"{name}{seed}")
    core = EndpointCore(
        config,
        datagram_bytes=1472,
        secret=name.encode() * 32,
        new_context=lambda: rng.getrandbits(64),
        rng=rng,
        accepting=name == "b",
        security=handshakes,
    )
    return End(name, core)
