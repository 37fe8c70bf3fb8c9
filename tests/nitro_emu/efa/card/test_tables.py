"""Numbers of objects: within the limit, unique, and used again as late as possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.efa.abi.enums import AdminStatus
from nitro_emu.efa.card.tables import Table
from nitro_emu.errors import AdminError


@given(st.lists(st.integers(-1, 20), max_size=100))
def test_numbers_are_unique_and_come_back_late(steps: list[int]) -> None:
    table: Table[str] = Table("things", limit=5, numbers=9, first=1)
    used: list[int] = []
    recent: list[int] = []
    for step in steps:
        if step < 0 and used:
            number = used.pop(step % len(used))
            table.remove(number)
            assert table.get(number) is None
        elif len(used) == 5:
            with pytest.raises(AdminError) as caught:
                table.reserve()
            assert caught.value.status == AdminStatus.RESOURCE_ALLOCATION_FAILURE
        else:
            number = table.reserve()
            assert 1 <= number < 9
            assert number not in used
            assert number not in recent[-3:], "8 numbers, 5 in use: the last three that were given out are not free"
            table.add(number, str(number))
            used.append(number)
            recent.append(number)
        assert len(table) == len(used)
        assert sorted(table) == sorted(map(str, used))
        assert all(table.get(number) == str(number) for number in used)


def test_objects_may_be_removed_while_one_iterates() -> None:
    table: Table[int] = Table("things", limit=5, numbers=9)
    for _ in range(4):
        number = table.reserve()
        table.add(number, number)
    for number in table:
        table.remove(number)
    assert not len(table)
