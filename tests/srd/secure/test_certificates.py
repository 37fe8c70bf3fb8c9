"""srd.secure.certificates: which certificates are accepted, and that no bytes raise anything but PacketError."""

from __future__ import annotations

import re
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.base.errors import PacketError, UsageError
from srd.secure.certificates import (
    INITIATOR,
    RESPONDER,
    Authorities,
    certificate_in,
    key_of_untrusted,
    parse_untrusted,
    read_authorities,
    utc_now,
)
from srd.secure.config import Cert
from tests.srd.secure.ends import AUTHORITIES, NOW, authority, authority_key, certificate, static

NAMES = ("b", "host.example.com", "10.0.0.1", "fe80::1")


def refusal(der: bytes, *, host: str | None = "b", authorities: Authorities = AUTHORITIES, days: float = 0) -> str:
    """Why it is refused; empty if it is not."""
    return authorities.refusal_untrusted(der, use=RESPONDER, host=host, now=NOW + timedelta(days=days)) or ""


@pytest.mark.parametrize("host", ["b", "B", "host.example.com", "HOST.example.com.", "10.0.0.1", "fe80::1%eth0", None])
def test_refusal__none(host: str | None) -> None:
    assert not refusal(certificate("b", names=NAMES), host=host)


@pytest.mark.parametrize("host", ["c", "example.com", "10.0.0.2", "x.host.example.com", ""])
def test_refusal__of_another_name(host: str) -> None:
    found = refusal(certificate("b", names=NAMES), host=host)
    assert found == f"its certificate is for b, host.example.com, 10.0.0.1, fe80::1, not for {host}"
    assert refusal(certificate("b"), host=host) == f"its certificate is for no name, not for {host}"


@pytest.mark.parametrize(
    ("der", "reason"),
    [
        (certificate("b", names=("b",), issuer="evil"), "is issued by 'CN=evil', which is not trusted"),
        (certificate("b", names=("b",), from_days=1, to_days=2), "is valid from 2026-06-02 00:00:00 to"),
        (certificate("b", names=("b",), from_days=-3, to_days=-1), "is valid from 2026-05-29 00:00:00 to"),
        (certificate("b", names=("b",), uses=(INITIATOR,)), "is not for server authentication"),
        (certificate("b", names=("b",), critical="1.2.3.4"), "has the critical extension 1.2.3.4"),
        (authority().public_bytes(Encoding.DER), "is not of an X25519 key"),
        (b"", "cannot be parsed"),
    ],
)
def test_refusal__with_its_reason(der: bytes, reason: str) -> None:
    assert reason in refusal(der)


def test_refusal__by_use() -> None:
    der = certificate("b", names=("b",), uses=(RESPONDER,))
    assert not refusal(der)
    found = AUTHORITIES.refusal_untrusted(der, use=INITIATOR, host=None, now=NOW)
    assert found == "its certificate is not for client authentication"
    assert AUTHORITIES.refusal_untrusted(certificate("b"), use=INITIATOR, host=None, now=NOW) is None


def test_refusal__an_authority_that_has_expired() -> None:
    der = certificate("b", names=("b",), to_days=30)
    assert refusal(der, days=11).startswith("its authority's certificate is valid from")


def test_refusal__an_authority_that_has_renewed_its_certificate() -> None:
    """Whichever of both comes first."""
    old, new = authority(from_days=-20, to_days=-5), authority(from_days=-6, to_days=10)
    for order in ((old, new), (new, old)):
        assert not refusal(certificate("b", names=("b",)), authorities=Authorities(order))


def test_refusal__a_signature_of_an_unknown_algorithm() -> None:
    """Whoever knows the name of an authority with an RSA key can send one; the library raises for it."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rsa")])
    builder = x509.CertificateBuilder().issuer_name(name).serial_number(1)
    builder = builder.not_valid_before(NOW - timedelta(days=1)).not_valid_after(NOW + timedelta(days=1))
    issuer = builder.subject_name(name).public_key(key.public_key())
    issuer = issuer.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pss = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=32)
    made = builder.subject_name(name).public_key(static("b").public_key()).sign(key, hashes.SHA256(), rsa_padding=pss)
    sha256 = bytes.fromhex("0609608648016503040201")
    unknown = made.public_bytes(Encoding.DER).replace(sha256, sha256[:-1] + b"\x7f")
    assert "is not trusted" in refusal(unknown, authorities=Authorities((issuer.sign(key, hashes.SHA256()),)))


def test_refusal__of_an_authority_with_the_same_name_and_another_key() -> None:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
    key = authority_key("evil")
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    false = builder.sign(key, algorithm=None)
    assert "is not trusted" in refusal(certificate("b", names=("b",)), authorities=Authorities((false,)))


def test_refusal__each_bit_flipped_once() -> None:
    """Of what is signed; the signature's own encoding has one bit without a meaning."""
    der = certificate("b", names=("b",), uses=(RESPONDER,))
    signed = parse_untrusted(der).tbs_certificate_bytes
    for bit in range(8 * len(der)):
        forged = bytearray(der)
        forged[bit // 8] ^= 1 << bit % 8
        if not refusal(bytes(forged)):
            assert parse_untrusted(bytes(forged)).tbs_certificate_bytes == signed


@given(st.binary(max_size=300))
def test_key_of__arbitrary_bytes(der: bytes) -> None:
    with pytest.raises(PacketError):
        key_of_untrusted(der)


# -- files -----------------------------------------------------------------------------------------------------------


def pem(der: bytes) -> str:
    return x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM).decode()


def key_pem(name: str) -> str:
    return static(name).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture
def authorities(tmp_path: Path) -> Path:
    return written(tmp_path / "ca.pem", authority().public_bytes(Encoding.PEM).decode())


@pytest.mark.parametrize("key_first", [True, False])
def test_cert_read__certificate_and_key_in_one_file(tmp_path: Path, authorities: Path, *, key_first: bool) -> None:
    parts = [key_pem("b"), "some text\n", pem(certificate("b", names=("b",)))]
    path = written(tmp_path / "b.pem", "".join(parts if key_first else parts[::-1]))
    cert = Cert.read(path, authorities=authorities)
    assert cert.certificate == certificate("b", names=("b",))
    assert cert.private_key.private_bytes_raw() == static("b").private_bytes_raw()
    assert repr(cert) == "Cert(b)"


def test_cert_read__bad_flow(tmp_path: Path, authorities: Path) -> None:
    other = authority_key("x").private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    mine, key = pem(certificate("b")), key_pem("b")
    names = tuple(f"a-rather-long-name-of-a-host-{number}.example.com" for number in range(20))
    for text, expected in (
        (mine, "has no private key"),
        (key, "has no certificate of an X25519 key"),
        (mine + other, "has a private key that is not of X25519"),
        (mine + key.replace("M", "N", 1), "its private key cannot be read"),
        (authority().public_bytes(Encoding.PEM).decode() + key, "has no certificate of an X25519 key"),
        (mine + key_pem("c"), "is not of this private key"),
        (pem(certificate("b", names=names)) + key, "does not fit into a HELLO"),
    ):
        with pytest.raises(UsageError, match=expected):
            Cert.read(written(tmp_path / "b.pem", text), authorities=authorities)


def test_read_authorities__bad_flow(tmp_path: Path) -> None:
    plain = authority("no-authority", is_ca=False).public_bytes(Encoding.PEM).decode()
    for text, expected in (("", "no certificates in PEM"), (plain, "'CN=no-authority' is no authority")):
        with pytest.raises(UsageError, match=expected):
            read_authorities(written(tmp_path / "ca.pem", text))
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_authorities(tmp_path / "gone.pem")
    with pytest.raises(UsageError, match="no certificate of an X25519 key"):
        certificate_in("nothing", tmp_path)


def test_cert_read__made_by_openssl_as_the_documentation_says(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "security.md").read_text()
    (commands,) = re.findall(r"```\n(openssl .*?)```", text, re.DOTALL)
    subprocess.run(["bash", "-euc", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    cert = Cert.read(tmp_path / "host.pem", authorities=tmp_path / "ca.pem")
    for host, use in (("receiver.example", RESPONDER), ("127.0.0.1", RESPONDER), (None, INITIATOR)):
        refused = cert.authorities.refusal_untrusted(cert.certificate, use=use, host=host, now=utc_now())
        assert refused is None
