"""Tokens against a model, and the kernel's limits one by one."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from devmem.errors import PoolError
from devmem.tokens import Frag, Tokens, cmsgs, ranges
from devmem.uapi import MAX_TOKEN


def issue(tokens: Tokens, count: int, *, back: list[Frag], region_id: int = 3) -> list[Frag]:
    start = len(tokens) + len(back)
    return [
        tokens.issue(region_id, offset=(start + index) * 100, length=100, give_back=back.append)
        for index in range(count)
    ]


class TokensMachine(RuleBasedStateMachine):
    """Issue and return in every way, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = Tokens(first=MAX_TOKEN - 5)  # they wrap soon
        self.back: list[Frag] = []
        self.out: dict[int, Frag] = {}
        self.offset = 0

    def returned(self, token: int) -> None:
        assert self.back.pop() == self.out.pop(token)

    @rule(region_id=st.integers(0, 2))
    def issue(self, region_id: int) -> None:
        frag = self.tokens.issue(region_id, offset=self.offset, length=7, give_back=self.back.append)
        self.offset += 7
        assert frag.token not in self.out
        assert 0 <= frag.token <= MAX_TOKEN
        self.out[frag.token] = frag

    @rule(start=st.sampled_from([0, MAX_TOKEN - 6, MAX_TOKEN]), count=st.integers(0, 12))
    def dontneed(self, start: int, count: int) -> None:
        wanted = {token for token in range(start, start + count) if token in self.out}
        assert self.tokens.dontneed([(start, count)]) == len(wanted)
        assert {frag.token for frag in self.back} == wanted
        self.back.clear()
        for token in wanted:
            del self.out[token]

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def dontneed_twice(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.out)))
        assert self.tokens.dontneed([(token, 1)]) == 1
        self.returned(token)
        assert self.tokens.dontneed([(token, 1)]) == 0

    @invariant()
    def count(self) -> None:
        assert len(self.tokens) == len(self.out)
        assert not self.back


TestTokens = TokensMachine.TestCase
TestTokens.settings = settings(max_examples=60, stateful_step_count=40)


def test_issue__together_is_one_range() -> None:
    tokens = Tokens(first=50)
    frags = issue(tokens, 4, back=[])
    assert [frag.token for frag in frags] == [50, 51, 52, 53]
    assert frags[1] == Frag(100, 100, 51, 3)
    assert ranges(frag.token for frag in frags) == [(50, 4)]
    assert ranges([7, 8, 3, 4, 5, 9, 8]) == [(7, 2), (3, 3), (9, 1), (8, 1)]
    assert ranges([]) == []


def test_issue__starts_at_random() -> None:
    """So that a token of one endpoint is unknown to another."""
    firsts = {issue(Tokens(), 1, back=[])[0].token for _ in range(50)}
    assert len(firsts) == 50


def test_dontneed__of_another_endpoint_frees_nothing() -> None:
    back: list[Frag] = []
    one, two = Tokens(first=1000), Tokens(first=2000)
    frags = issue(one, 3, back=back)
    issue(two, 3, back=[])
    assert two.dontneed(ranges(frag.token for frag in frags)) == 0
    assert (len(one), len(two), two.skipped, back) == (3, 3, 3, [])


def test_dontneed__twice_frees_once() -> None:
    back: list[Frag] = []
    tokens = Tokens(first=0)
    issue(tokens, 3, back=back)
    assert tokens.dontneed([(0, 2), (1, 2)]) == 3
    assert tokens.dontneed([(0, 3)]) == 0
    assert [frag.token for frag in back] == [0, 1, 2]


def test_dontneed__the_kernels_limits() -> None:
    tokens = Tokens(first=0)
    issue(tokens, 3000, back=[])
    with pytest.raises(PoolError, match="129 ranges are more than the 128 of a call"):
        tokens.dontneed([(0, 1)] * 129)
    assert len(tokens) == 3000
    assert tokens.dontneed([(token, 1) for token in range(128)]) == 128
    assert tokens.dontneed([(0, 1000), (1000, 2000)]) == 896, "1,024 are processed, 128 of them unknown"
    assert tokens.dontneed([(1024, 0xFFFFFFFF)]) == 1024, "and it returns"
    assert tokens.dontneed([]) == 0


@pytest.mark.parametrize("bad", [(-1, 1), (0, -1), (1 << 31, 1), (0, 1 << 32)])
def test_dontneed__invalid_ranges_bad_flow(bad: tuple[int, int]) -> None:
    tokens = Tokens(first=0)
    issue(tokens, 1, back=[])
    with pytest.raises(PoolError, match="no such range"):
        tokens.dontneed([(0, 1), bad])
    assert len(tokens) == 1


def test_cmsgs__as_the_kernel_writes_them() -> None:
    array = cmsgs([Frag(4096, 1500, 7, 2), Frag(1 << 40, 9, 8, 0)])
    assert array.nbytes == 48
    assert array[0].tobytes() == b"".join(
        [(4096).to_bytes(8, "little"), *(value.to_bytes(4, "little") for value in (1500, 7, 2, 0))]
    )
    assert array["frag_offset"].tolist() == [4096, 1 << 40]


def test_forget__returns_no_frags() -> None:
    back: list[Frag] = []
    tokens = Tokens(first=0)
    issue(tokens, 2, back=back)
    tokens.forget()
    assert tokens.dontneed([(0, 2)]) == len(tokens) == len(back) == 0
