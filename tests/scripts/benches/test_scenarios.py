"""scripts.benches.scenarios: the one table of what is wanted in virtual time is the page's."""

from __future__ import annotations

from scripts.benches.scenarios import PAGE, with_table


def test_page__has_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "write it: python -m scripts.benches.scenarios"
