"""srd.proto.base.lazy_deque: behaves as a deque, and allocates none while it is empty."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.base.lazy_deque import LazyDeque


@given(steps=st.lists(st.one_of(st.integers(0, 9), st.just("pop"))))
def test_lazy_deque__is_a_deque(steps: list[int | str]) -> None:
    ours, theirs = LazyDeque[int](), deque[int]()
    for step in steps:
        if step == "pop" and theirs:
            assert ours.popleft() == theirs.popleft()
        elif isinstance(step, int):
            ours.append(step)
            theirs.append(step)
        assert (list(ours), len(ours), bool(ours)) == (list(theirs), len(theirs), bool(theirs))
        assert not theirs or ours[0] == theirs[0]
        assert (ours._items is None) == (not theirs)


def test_lazy_deque__empty() -> None:
    queue = LazyDeque[int]()
    for use in (queue.popleft, lambda: queue[0]):
        with pytest.raises(IndexError):
            use()
