"""srd.secure.config: what each setting makes of credentials, and who an end is."""

from __future__ import annotations

from pathlib import Path

import pytest

from srd.proto.base.errors import UsageError
from srd.proto.base.security import SecurityMode
from srd.secure import config as module
from srd.secure.config import Cert, Identity, Keys, Plain, Psk, SecurityConfig
from srd.secure.keys import fingerprint, user_key_path
from srd.secure.noise import public_bytes
from tests.srd.secure.ends import AUTHORITIES, NOW, certificate, static

A, B = public_bytes(static("a")), public_bytes(static("b"))


def keys(tmp_path: Path) -> Keys:
    return Keys(static("a"), known_hosts=tmp_path / "known_hosts")


def cert(name: str = "a") -> Cert:
    return Cert(static(name), certificate(name, names=(name,)), AUTHORITIES)


@pytest.mark.parametrize(
    ("config", "mode", "own"),
    [
        (Plain(), SecurityMode.PLAIN, Identity(SecurityMode.PLAIN)),
        (Psk(bytes(32)), SecurityMode.PSK, Identity(SecurityMode.PSK)),
        (Keys(static("a"), known_hosts=Path("gone")), SecurityMode.KEYS, Identity(SecurityMode.KEYS, A)),
        (cert(), SecurityMode.CERT, Identity(SecurityMode.CERT, A, ("a",))),
    ],
    ids=["plain", "psk", "keys", "cert"],
)
def test_open__mode_and_own_identity(config: SecurityConfig, mode: SecurityMode, own: Identity) -> None:
    trust = config.open(socket_id=b"here")
    assert trust.mode is mode
    assert trust.own_identity == own
    assert (trust.handshakes is None) is (mode is SecurityMode.PLAIN)
    assert own.fingerprint == (fingerprint(A) if own.public_key else "")


def test_keys__of_this_user_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRD_HOME", str(tmp_path / "home"))
    one, other = (Keys().open(socket_id=b"here").own_identity for _ in range(2))
    assert one == other
    assert user_key_path().exists()


def test_keys__authorized_decides_who_may_open_a_peer(tmp_path: Path) -> None:
    anybody = keys(tmp_path).open(socket_id=b"here").handshakes
    only = (
        Keys(static("a"), known_hosts=tmp_path / "none", authorized=frozenset((A,))).open(socket_id=b"here").handshakes
    )
    assert anybody is not None
    assert only is not None
    assert [each.admits(key) for each in (anybody, only) for key in (A, B)] == [True, True, True, False]


@pytest.mark.sources  # replaces the clock
def test_cert__admits_what_an_authority_has_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "utc_now", lambda: NOW)
    handshakes = cert().open(socket_id=b"here").handshakes
    assert handshakes is not None
    assert handshakes.admits(certificate("b"))
    assert not handshakes.admits(certificate("b", issuer="evil"))


# -- the credential of a responder -----------------------------------------------------------------------------------


def test_credential_check__a_fingerprint(tmp_path: Path) -> None:
    check = keys(tmp_path).open(socket_id=b"here").credential_check("h", name="h:1", expected=fingerprint(B))
    assert check is not None
    assert check(B) is None
    assert check(A) == f"has another key than {fingerprint(B)}"


@pytest.mark.parametrize("config", [Plain(), Psk(bytes(32)), cert()], ids=["plain", "psk", "cert"])
def test_credential_check__a_fingerprint_that_proves_nothing_bad_flow(config: SecurityConfig) -> None:
    with pytest.raises(UsageError, match="a fingerprint needs security by keys; this endpoint has"):
        config.open(socket_id=b"here").credential_check("h", name="h:1", expected="x")


def test_credential_check__known_hosts(tmp_path: Path) -> None:
    trust = keys(tmp_path).open(socket_id=b"here")
    assert trust.known_hosts is not None
    trust.known_hosts.add("h:1", B)
    check = trust.credential_check("h", name="h:1", expected=None)
    assert check is not None
    assert check(B) is None
    assert "has another key than before" in (check(public_bytes(static("c"))) or "")
    (tmp_path / "known_hosts").write_text("damaged\n")
    assert "line 1: is no public key" in (check(B) or ""), "an unreadable file refuses, and raises nothing"


@pytest.mark.sources  # replaces the clock
def test_credential_check__certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "utc_now", lambda: NOW)
    check = cert().open(socket_id=b"here").credential_check("b", name="b:1", expected=None)
    assert check is not None
    assert check(certificate("b", names=("b",))) is None
    assert "not for b" in (check(certificate("b", names=("c",))) or "")


@pytest.mark.parametrize("config", [Plain(), Psk(bytes(32))], ids=["plain", "psk"])
def test_credential_check__none_where_it_proves_nothing(config: SecurityConfig) -> None:
    assert config.open(socket_id=b"here").credential_check("h", name="h:1", expected=None) is None


# -- certificates ------------------------------------------------------------------------------------------------------


def test_cert__of_another_key_bad_flow() -> None:
    with pytest.raises(UsageError, match="is not of this private key"):
        Cert(static("b"), certificate("a"), AUTHORITIES)


def test_identity__of_a_peer() -> None:
    trust = cert().open(socket_id=b"here")
    assert trust.identity(certificate("b", names=("b", "10.0.0.1"))) == Identity(
        SecurityMode.CERT, B, ("b", "10.0.0.1")
    )
