"""nitro_emu.trust.egress: which hosts the guard refuses, each with an alarm."""

from __future__ import annotations

import errno

import pytest

from nitro_emu.errors import TrustError
from nitro_emu.trust.alarms import Alarms
from nitro_emu.trust.egress import MAX_HOSTS, EgressGuard, EgressRefusedError


@pytest.fixture
def alarms() -> Alarms:
    return Alarms()


@pytest.mark.parametrize("host", ["127.0.0.2", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.2"])
def test_check_knows_every_spelling_of_an_allowed_host(host: str, alarms: Alarms) -> None:
    guard = EgressGuard(alarms)
    guard.set_allowed(frozenset({"127.0.0.2", "::1"}))
    guard.check(host)
    assert not alarms.counts


@pytest.mark.parametrize("host", ["127.0.0.1", "203.0.113.7", "::2", "", "example.org", "127.0.0.2.", "0x7f000002"])
def test_check_refuses_others_with_an_alarm(host: str, alarms: Alarms) -> None:
    guard = EgressGuard(alarms)
    guard.set_allowed(frozenset({"127.0.0.2", "::1"}))
    with pytest.raises(TrustError, match="the control plane did not ask for it"):
        guard.check(host)
    assert alarms.counts == {"egress": 1}


def test_new_guard_allows_nothing_and_one_without_a_control_plane_any_host() -> None:
    guard = EgressGuard(Alarms())
    with pytest.raises(EgressRefusedError):
        guard.check("127.0.0.1")
    guard.set_allowed(None)
    guard.check("203.0.113.7")


def test_what_is_no_address_is_not_allowed_and_changes_nothing() -> None:
    guard = EgressGuard(Alarms())
    guard.set_allowed(frozenset({"127.0.0.2"}))
    with pytest.raises(TrustError, match="'example' is no IP address"):
        guard.set_allowed(frozenset({"example"}))
    with pytest.raises(TrustError, match="are more than 65536"):
        guard.set_allowed(frozenset(map(str, range(MAX_HOSTS + 1))))
    guard.check("127.0.0.2")


def test_refusal_is_a_firewalls() -> None:
    guard = EgressGuard(Alarms())
    with pytest.raises(PermissionError) as caught:
        guard.check("127.0.0.1")
    assert caught.value.errno == errno.EPERM
    assert str(caught.value) == "egress guard: 127.0.0.1: the control plane did not ask for it"
