"""netns.base.message_sizes: distributions, and their published means."""

from __future__ import annotations

import pytest

from netns.base.message_sizes import DATA_MINING, WEB_SEARCH, mean_bytes, quantile


@pytest.mark.parametrize("sizes", [WEB_SEARCH, DATA_MINING], ids=["web search", "data mining"])
def test_distribution__is_one(sizes: tuple[tuple[int, float], ...]) -> None:
    assert sizes == tuple(sorted(sizes))
    assert [share for _, share in sizes] == sorted(share for _, share in sizes)
    assert (sizes[0][1], sizes[-1][1]) == (0.0, 1.0)
    for size, share in sizes:
        assert quantile(sizes, share) == size


def test_distributions__have_the_published_means() -> None:
    """Papers that use them name 1.6 MB, and 7.4 to 13 MB as points were read off."""
    assert mean_bytes(WEB_SEARCH) == pytest.approx(1.6e6, rel=0.1)
    assert 7e6 < mean_bytes(DATA_MINING) < 14e6
