"""Shares of descriptors and mappings: what one virtual function may have does not depend on what others ask for."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.card.shares import DESCRIPTORS, MAPPINGS, divided, shared_out
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.errors import CardError

LEAST = sum(DESCRIPTORS.values())


def vf(number: int = 0, **limits: int) -> EfaConfig:
    return EfaConfig(name=f"efa_{number}", address=f"127.0.0.{number + 1}", **limits)  # type: ignore[arg-type]


def need(config: EfaConfig) -> int:
    return sum(cost * int(getattr(config, name)) for name, cost in DESCRIPTORS.items())


limits = st.fixed_dictionaries({name: st.integers(1, 4000) for name in DESCRIPTORS})


@given(st.lists(limits, min_size=1, max_size=8), st.integers(0, 100_000))
def test_all_limits_together_fit_and_no_one_gets_less_than_an_equal_share(
    asked: list[dict[str, int]], left: int
) -> None:
    before = [vf(number, **each) for number, each in enumerate(asked)]
    equal = left // len(before)
    try:
        after = divided(before, costs=DESCRIPTORS, left=left, what="descriptors")
    except CardError:
        assert equal < LEAST
        return
    assert sum(map(need, after)) <= left
    for was, now in zip(before, after, strict=True):
        assert all(1 <= getattr(now, name) <= getattr(was, name) for name in DESCRIPTORS)
        assert need(now) > min(need(was), equal) - LEAST


def test_what_fits_stays_as_it_is() -> None:
    before = [vf(number) for number in range(3)]
    assert divided(before, costs=MAPPINGS, left=65530, what="mappings") == before


@pytest.fixture
def descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("descriptors")
def test_the_limits_of_this_process_count(caplog: pytest.LogCaptureFixture) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))
    (first, second) = shared_out([vf(0), vf(1)])
    assert (first.max_qps, second.max_qps) == (first.max_qps, first.max_qps)
    assert first.max_qps < vf().max_qps
    assert "efa_0: has {'max_connections'" in caplog.text
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    with pytest.raises(CardError, match=r"^300 descriptors of the process \(LimitNOFILE\) are too few for 2 virtual"):
        shared_out([vf(0), vf(1)])
