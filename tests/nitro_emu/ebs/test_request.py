"""A request's states."""

from __future__ import annotations

from itertools import product

import pytest

from nitro_emu.ebs.request import NEXT, BlockOperation, RequestState, VolumeRequest


@pytest.mark.parametrize(("before", "after"), list(product(RequestState, RequestState)))
def test_a_request_goes_the_steps_of_the_table_and_no_others(before: RequestState, after: RequestState) -> None:
    request = VolumeRequest(command=BlockOperation.READ, state=before)
    if after in NEXT[before]:
        request.become(after)
        assert request.state is after
    else:
        with pytest.raises(ValueError, match=f"that is {before.value} cannot become {after.value}"):
            request.become(after)


def test_every_state_is_reached_and_ends_are_ends() -> None:
    assert set().union(*NEXT.values()) == set(RequestState) - {RequestState.QUEUED}
    assert {state for state, after in NEXT.items() if not after} == {RequestState.DONE, RequestState.FAILED}
