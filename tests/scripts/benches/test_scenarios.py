"""scripts.benches.scenarios: the one table of what is wanted in virtual time is the page's."""

from __future__ import annotations

from scripts.benches.scenarios import BEGIN, END, PAGE, VIRTUAL, with_table


def test_page__has_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "write it: python -m scripts.benches.scenarios"


def test_with_table__replaces_what_is_between_the_marks_only() -> None:
    made = with_table(f"before\n{BEGIN}old\n{END}after\n")
    assert made.startswith(f"before\n{BEGIN}")
    assert made.endswith(f"{END}after\n")
    assert "old" not in made
    assert made.count("\n| `") == len(VIRTUAL)
    assert "\n| `loss` | 0.1, 1, 5, 10 % on all paths, acks too | `capacity_fraction_1pct` >= 0.95, " in made
