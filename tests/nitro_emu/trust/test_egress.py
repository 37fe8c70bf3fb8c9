"""nitro_emu.trust.egress: which hosts the guard refuses, each with an alarm."""

from __future__ import annotations

import pytest

from nitro_emu.errors import TrustError
from nitro_emu.trust.alarms import Alarms
from nitro_emu.trust.egress import EgressGuard


@pytest.mark.parametrize("host", ["127.0.0.1", "203.0.113.7", "::2", "", "example.org", "127.0.0.2.", "0x7f000002"])
def test_what_is_not_allowed_is_refused_with_an_alarm(host: str) -> None:
    alarms = Alarms()
    guard = EgressGuard(alarms)
    guard.set_allowed(frozenset({"127.0.0.2", "::1"}))
    guard.check("127.0.0.2")
    guard.check("::1")
    with pytest.raises(TrustError, match="the control plane did not ask for it"):
        guard.check(host)
    assert not guard.allows(host)
    assert alarms.counts == {"egress": 1}


def test_new_guard_allows_nothing_and_one_without_a_control_plane_any_host() -> None:
    guard = EgressGuard(Alarms())
    with pytest.raises(TrustError):
        guard.check("127.0.0.1")
    guard.set_allowed(None)
    guard.check("203.0.113.7")
