"""Doorbells: every change is noticed once, with few and with many of them, whatever the handlers do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devmem.region import Region
from nitro_emu.efa.abi.memory import NEED_KICK_OFFSET
from nitro_emu.efa.card.doorbells import FEW, Doorbells


class Page:
    """Doorbells with the program's view of them."""

    def __init__(self) -> None:
        self.uar, self.status = Region(4096), Region(8192)
        self.doorbells = Doorbells(self.uar, self.status)
        self.words = memoryview(self.uar).cast("I")
        self.heard: list[tuple[int, int]] = []

    def watch(self, index: int) -> None:
        read = self.doorbells.word(index * 4)
        self.doorbells.watch(index * 4, lambda: self.heard.append((index, read())))

    @property
    def need_kick(self) -> int:
        return self.status[NEED_KICK_OFFSET]

    def close(self) -> None:
        self.words.release()
        self.doorbells.close()
        self.uar.close()
        self.status.close()


@pytest.fixture
def page() -> Iterator[Page]:
    page = Page()
    yield page
    page.close()


@given(
    st.integers(1, 2 * FEW),
    st.lists(
        st.tuples(
            st.sampled_from(("ring", "ring", "scan", "watch", "unwatch")), st.integers(0, 2 * FEW), st.integers(0, 3)
        ),
        max_size=60,
    ),
)
def test_a_changed_doorbell_is_always_heard(count: int, steps: list[tuple[str, int, int]]) -> None:
    page = Page()
    watched = set(range(count))
    for index in watched:
        page.watch(index)
    last = dict.fromkeys(watched, 0)  # what its handler has seen at last
    for what, index, value in steps:
        if what == "ring":
            page.words[index] = value
        elif what == "watch":
            page.watch(index)
            watched.add(index)
            last[index] = 0
        elif what == "unwatch":
            page.doorbells.unwatch(index * 4)
            watched.discard(index)
        else:
            page.heard.clear()
            page.doorbells.scan()
            last.update(page.heard)
            assert {index for index, _ in page.heard} <= watched
            for each in watched:
                assert last[each] == page.words[each], "a program rang, and was not heard"
    page.close()


@pytest.mark.parametrize("count", [2, FEW + 2])
def test_a_handler_may_end_another(page: Page, count: int) -> None:
    heard = []

    def handler(index: int) -> None:
        heard.append(index)
        for other in range(count):
            page.doorbells.unwatch(other * 4)

    for index in range(count):
        page.doorbells.watch(index * 4, lambda index=index: handler(index))  # type: ignore[misc]
        page.words[index] = 1
    assert page.doorbells.scan()
    assert len(heard) == 1
    assert not page.doorbells.scan()


def test_sleep_asks_for_kicks_unless_a_doorbell_has_changed(page: Page) -> None:
    page.watch(0)
    page.words[0] = 1
    assert not page.doorbells.sleep()
    assert page.need_kick == 0
    assert page.heard == [(0, 1)]
    assert page.doorbells.sleep()
    assert page.need_kick == 1
    page.doorbells.wake()
    assert page.need_kick == 0
