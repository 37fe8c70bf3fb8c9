"""nitro_emu.chip.states: the table of the boot."""

from __future__ import annotations

import pytest

from nitro_emu.chip.states import ALWAYS, ANSWERED, TRANSITIONS, BootState, BootStep, Machine
from nitro_emu.errors import TrustError


def test_a_boot_that_succeeds() -> None:
    machine = Machine()
    steps = (BootStep.POWER_ON, BootStep.STORE_SOUND, BootStep.MEASURED, BootStep.AS_SIGNED)
    assert [machine.step(step) for step in steps] == [BootState.ROM, BootState.MEASURE, BootState.VERIFY, BootState.RUN]


@pytest.mark.parametrize("state", BootState)
@pytest.mark.parametrize("step", BootStep)
def test_what_is_not_in_the_table_is_refused(state: BootState, step: BootStep) -> None:
    machine = Machine()
    machine.state = state
    if (state, step) in TRANSITIONS:
        assert machine.step(step) is TRANSITIONS[state, step]
        return
    with pytest.raises(TrustError, match=f"{state.value} has no step"):
        machine.step(step)
    assert machine.state is state


def test_run_is_reached_from_verify_only() -> None:
    assert [key for key, after in TRANSITIONS.items() if after is BootState.RUN] == [
        (BootState.VERIFY, BootStep.AS_SIGNED)
    ]


def test_sealed_is_left_by_a_reset_only() -> None:
    assert [step for state, step in TRANSITIONS if state is BootState.SEALED] == [BootStep.RESET]


def test_only_a_card_that_runs_gets_more_than_the_status() -> None:
    assert {state for state in BootState if ANSWERED[state] != ALWAYS} == {BootState.RUN}
    assert sorted(ALWAYS) == ["Boot", "Status"]
