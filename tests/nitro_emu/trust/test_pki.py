"""Certificates of our own, against AWS's, and the files that they are kept in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization import PublicFormat as Form

from nitro_emu.errors import TrustError
from nitro_emu.trust import pki
from nitro_emu.trust.cose import parse_untrusted
from nitro_emu.trust.documents import decode_untrusted
from nitro_emu.trust.pki import Authority, make_root
from nitro_emu.trust.verify import AWS_ROOT_SHA256, chain_untrusted
from tests.nitro_emu.trust.samples import NOW, REAL, authorities, aws_root, issue


def constraints(certificate: x509.Certificate) -> tuple[bool, bool, int | None]:
    found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    return found.critical, found.value.ca, found.value.path_length


def usage(certificate: x509.Certificate) -> tuple[bool, bool, bool]:
    found = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    return found.critical, found.value.key_cert_sign, found.value.digital_signature


def aws_chain() -> tuple[x509.Certificate, ...]:
    return chain_untrusted(decode_untrusted(parse_untrusted(REAL[0].signed).payload))


def test_profile_is_that_of_aws() -> None:
    ours = [authority.certificate for authority in authorities()]
    for our, their in zip(ours, aws_chain(), strict=True):
        assert constraints(our) == constraints(their)
        assert our.signature_algorithm_oid == their.signature_algorithm_oid
        assert our.version == their.version
        key, theirs = our.public_key(), their.public_key()
        assert isinstance(key, EllipticCurvePublicKey)
        assert isinstance(theirs, EllipticCurvePublicKey)
        assert key.curve.name == theirs.curve.name
    assert usage(ours[-1]) == usage(aws_chain()[-1]) == (False, False, True)
    assert usage(ours[-2]) == usage(aws_chain()[-2]) == (True, True, False)
    assert all(usage(certificate)[1] for certificate in ours[:-1])


def test_lifetimes() -> None:
    lifetimes = [
        authority.certificate.not_valid_after_utc - authority.certificate.not_valid_before_utc
        for authority in authorities()
    ]
    assert lifetimes == [timedelta(days=days) for days in (30 * 365, 20, 6, 1)] + [timedelta(hours=3)]
    assert all(authority.certificate.not_valid_before_utc == NOW for authority in authorities())


def test_now_has_any_zone_and_is_cut_to_seconds() -> None:
    now = datetime(2026, 1, 1, 2, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=2)))
    assert make_root("root", now=now).certificate.not_valid_before_utc == datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(TrustError, match="the time 2026-01-01T00:00:00 has no time zone"):
        make_root("root", now=datetime(2026, 1, 1))  # noqa: DTZ001 - the fault


@pytest.mark.parametrize("name", ["", "n" * 65])
def test_names_that_do_not_fit(name: str) -> None:
    with pytest.raises(TrustError, match=f"has {len(name)} characters"):
        make_root(name, now=NOW)


def test_what_may_be_issued() -> None:
    root, _, _, instance, leaf = authorities()
    with pytest.raises(TrustError, match="'leaf' is a leaf's certificate"):
        leaf.make_leaf("x", now=NOW)
    with pytest.raises(TrustError, match="'leaf' is a leaf's certificate"):
        leaf.make_intermediate("x", now=NOW, days=1, path_length=0)
    with pytest.raises(TrustError, match="'instance' has the path length 0"):
        instance.make_intermediate("x", now=NOW, days=1, path_length=0)
    below = root.make_intermediate("below", now=NOW, days=1, path_length=1)
    with pytest.raises(TrustError, match="'below' has the path length 1"):
        below.make_intermediate("x", now=NOW, days=1, path_length=1)
    assert constraints(below.make_intermediate("x", now=NOW, days=1, path_length=0).certificate) == (True, True, 0)


def test_root_of_aws_is_the_pinned_one() -> None:
    assert pki.fingerprint(aws_root()) == AWS_ROOT_SHA256
    assert pki.common_name(aws_root()) == "aws.nitro-enclaves"
    assert all(
        pki.certificate_der(aws_root()) == decode_untrusted(parse_untrusted(real.signed).payload).cabundle[0]
        for real in REAL
    )


def test_files_round_trip() -> None:
    leaf = authorities()[-1]
    for data in (pki.certificate_pem(leaf.certificate), pki.certificate_der(leaf.certificate)):
        assert pki.load_certificate_untrusted(data, name="x") == leaf.certificate
    private = pki.load_private_key_untrusted(pki.private_key_pem(leaf.private_key), name="x")
    assert private.private_numbers() == leaf.private_key.private_numbers()
    public = leaf.private_key.public_key()
    assert pki.load_public_key_untrusted(pki.public_key_pem(public), name="x") == public
    again = Authority(leaf.certificate, private)
    assert again.der == leaf.der


def pem_of(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_files_that_are_refused() -> None:
    small, other = generate_private_key(SECP256R1()), Ed25519PrivateKey.generate()
    locked = authorities()[0].private_key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )
    for pem in (b"", b"-----BEGIN PRIVATE KEY-----\n", locked, pki.public_key_pem(small.public_key())):
        with pytest.raises(TrustError, match="FILE has no private key in PEM that can be read without a password"):
            pki.load_private_key_untrusted(pem, name="FILE")
    for pem in (pki.private_key_pem(small), pem_of(other)):
        with pytest.raises(TrustError, match="FILE has a private key that is not of P-384"):
            pki.load_private_key_untrusted(pem, name="FILE")
    for pem in (b"", b"-----BEGIN PUBLIC KEY-----\n", locked):
        with pytest.raises(TrustError, match="FILE has no public key in PEM"):
            pki.load_public_key_untrusted(pem, name="FILE")
    for pem in (
        pki.public_key_pem(small.public_key()),
        other.public_key().public_bytes(Encoding.PEM, Form.SubjectPublicKeyInfo),
    ):
        with pytest.raises(TrustError, match="FILE has a public key that is not of P-384"):
            pki.load_public_key_untrusted(pem, name="FILE")
    for data in (b"", b"\x30\x82", b"-----BEGIN CERTIFICATE-----\n", locked):
        with pytest.raises(TrustError, match="FILE is no certificate that can be read"):
            pki.load_certificate_untrusted(data, name="FILE")


def test_serial_number_of_which_cryptography_only_warns_is_refused() -> None:
    der = authorities()[-1].der
    serial = der.index(b"\xa0\x03\x02\x01\x02\x02") + 7  # after the version: the first byte of the number
    negative = der[:serial] + bytes([der[serial] | 0x80]) + der[serial + 1 :]
    with pytest.raises(TrustError, match="FILE is no certificate that can be read"):
        pki.load_der_untrusted(negative, name="FILE")


def test_name_of_which_cryptography_only_warns_is_refused() -> None:
    der = aws_chain()[1].public_bytes(Encoding.DER)
    country = der.index(b"\x06\x03\x55\x04\x06\x13\x02US") + 4
    organization = der[:country] + b"\x0a" + der[country + 1 :]  # of a name that has an organization already
    assert pki.load_der_untrusted(organization, name="FILE").version == x509.Version.v3
    state = der.index(b"\x06\x03\x55\x04\x0a\x0c\x06Amazon") + 4
    with pytest.raises(TrustError, match="FILE is no certificate that can be read"):  # a country of 6 letters
        pki.load_der_untrusted(der[:state] + b"\x06" + der[state + 1 :], name="FILE")


def test_signature_has_one_encoding() -> None:
    der, signature = authorities()[-1].der, authorities()[-1].certificate.signature
    unused = der.rindex(b"\x00" + signature)
    for bits in range(1, 8):
        with pytest.raises(TrustError, match="FILE is no certificate that can be"):
            pki.load_der_untrusted(der[:unused] + bytes([bits]) + signature, name="FILE")


def test_key_of_another_curve_is_named() -> None:
    with pytest.raises(TrustError, match="the certificate 'p256' has a key that is not of P-384"):
        pki.public_key_of(issue(None, "p256", curve=SECP256R1()).certificate)
