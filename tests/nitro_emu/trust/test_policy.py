"""nitro_emu.trust.policy: the whole table, as it is to be."""

from __future__ import annotations

import pytest

from nitro_emu.trust.policy import CHANGES, POLICY, Call, Principal, is_allowed, principal_of

EVERYTHING = {"attest", "audit", "logs", "map", "stats", "status", "update"}

WANTED = {
    Principal.ROOT: EVERYTHING,
    Principal.CARD_USER: EVERYTHING,
    Principal.TENANT: {"attest"},
    Principal.CONTROL_PLANE: {"map"},
    Principal.UNKNOWN: set(),
}


@pytest.mark.parametrize("principal", Principal)
@pytest.mark.parametrize("call", [*Call, "memory", "", "STATUS"])
def test_table(principal: Principal, call: str) -> None:
    assert is_allowed(principal, call=call) is (call in WANTED[principal])


def test_every_call_and_principal_is_in_the_table() -> None:
    assert set(Call) == EVERYTHING
    assert POLICY.keys() == set(Principal)
    assert set(CHANGES) == {"map", "update"}


def test_table_cannot_be_changed_at_run_time() -> None:
    with pytest.raises(TypeError):
        POLICY[Principal.UNKNOWN] = frozenset(Call)  # type: ignore[index]


@pytest.mark.parametrize(
    ("uid", "principal"),
    [
        (0, Principal.ROOT),
        (500, Principal.CARD_USER),
        (1000, Principal.TENANT),
        (1001, Principal.TENANT),
        (1002, Principal.UNKNOWN),
        (65534, Principal.UNKNOWN),
    ],
)
def test_principal_of_a_user(uid: int, principal: Principal) -> None:
    assert principal_of(uid, card_uid=500, vf_uids=frozenset({0, 500, 1000, 1001})) is principal


def test_root_is_root_also_if_the_card_runs_as_root() -> None:
    assert principal_of(0, card_uid=0, vf_uids=frozenset()) is Principal.ROOT
