"""nitro_emu.chip.states: the table of the boot."""

from __future__ import annotations

import pytest

from nitro_emu.chip.states import ALWAYS, ANSWERED, TRANSITIONS, Machine, State, Step
from nitro_emu.errors import TrustError


def test_a_boot_that_succeeds() -> None:
    machine = Machine()
    steps = (Step.POWER_ON, Step.STORE_SOUND, Step.MEASURED, Step.AS_SIGNED)
    assert [machine.step(step) for step in steps] == [State.ROM, State.MEASURE, State.VERIFY, State.RUN]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("step", Step)
def test_what_is_not_in_the_table_is_refused(state: State, step: Step) -> None:
    machine = Machine()
    machine.state = state
    if (state, step) in TRANSITIONS:
        assert machine.step(step) is TRANSITIONS[state, step]
        return
    with pytest.raises(TrustError, match=f"{state.value} has no step"):
        machine.step(step)
    assert machine.state is state


def test_run_is_reached_from_verify_only() -> None:
    assert [key for key, after in TRANSITIONS.items() if after is State.RUN] == [(State.VERIFY, Step.AS_SIGNED)]


def test_sealed_is_left_by_a_reset_only() -> None:
    assert [step for state, step in TRANSITIONS if state is State.SEALED] == [Step.RESET]


def test_only_a_card_that_runs_gets_more_than_the_status() -> None:
    assert {state for state in State if ANSWERED[state] != ALWAYS} == {State.RUN}
    assert sorted(ALWAYS) == ["Boot", "Status"]
