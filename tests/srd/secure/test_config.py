"""srd.secure.config: which credentials of a responder are checked, and refused fingerprints."""

from __future__ import annotations

import pytest

from srd.proto.base.errors import UsageError
from srd.secure import config as module
from srd.secure.config import Cert, Plain, Psk, SecurityConfig
from tests.srd.secure.ends import AUTHORITIES, NOW, certificate, static


def cert(name: str = "a") -> Cert:
    return Cert(static(name), certificate(name, names=(name,)), AUTHORITIES)


# -- the credential of a responder -----------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [Plain(), Psk(bytes(32)), cert()], ids=["plain", "psk", "cert"])
def test_credential_check__a_fingerprint_that_proves_nothing_bad_flow(config: SecurityConfig) -> None:
    with pytest.raises(UsageError, match="a fingerprint needs security by keys; this endpoint has"):
        config.open(socket_id=b"here").credential_check("h", name="h:1", expected="x")


@pytest.mark.sources  # replaces the clock
def test_credential_check__certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "utc_now", lambda: NOW)
    check = cert().open(socket_id=b"here").credential_check("b", name="b:1", expected=None)
    assert check is not None
    assert check(certificate("b", names=("b",))) is None
    assert "not for b" in (check(certificate("b", names=("c",))) or "")
