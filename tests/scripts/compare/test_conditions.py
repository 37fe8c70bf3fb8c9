from __future__ import annotations

from scripts.compare.conditions import BY_KEY, CONDITIONS


def test_conditions__are_those_of_the_report() -> None:
    assert [condition.key for condition in CONDITIONS] == ["clean", "loss", "blackhole"]
    assert [condition.spine_loss_percent for condition in CONDITIONS] == [0.0, 1.0, 0.0]
    assert [condition.blackhole_at_fraction for condition in CONDITIONS] == [None, None, 0.4]
    assert list(BY_KEY) == ["clean", "loss", "blackhole"]
