"""srd.file_transfer.runs: every chunk once, in order, of the right kind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srd.file_transfer.runs import Range, RunKind, runs


def ranges_of(chunks: list[bool]) -> list[Range]:
    found = list[Range]()
    for index, is_in in enumerate(chunks):
        if is_in and found and sum(found[-1]) == index:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        elif is_in:
            found.append((index, 1))
    return found


@given(chunks=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30))
def test_runs__every_chunk_once(chunks: list[tuple[bool, bool]]) -> None:
    """What is there is not sent, whether it is a hole or not."""
    there, holes = ranges_of([is_there for is_there, _ in chunks]), ranges_of([is_hole for _, is_hole in chunks])
    found = [
        (run.kind, index) for run in runs(len(chunks), holes=holes, there=there) for index in range(run.first, run.end)
    ]
    kinds = [RunKind.THERE if is_there else RunKind.HOLE if is_hole else RunKind.DATA for is_there, is_hole in chunks]
    assert found == [(kind, index) for index, kind in enumerate(kinds)]
