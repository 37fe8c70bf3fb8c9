"""netns.observe.link_rates: rates from counters."""

from __future__ import annotations

from netns.observe.link_rates import rates


def test_rates() -> None:
    before = {
        "a-b": {"ab": {"packets": 10, "bytes": 1000, "dropped": 1}, "ba": {"packets": 0, "bytes": 0, "dropped": 0}}
    }
    after = {
        "a-b": {
            "ab": {"packets": 30, "bytes": 3500, "dropped": 5, "queued": 7},
            "ba": {"packets": 0, "bytes": 0, "dropped": 0},
        }
    }
    one, other = rates(before, after, seconds=2, dead={"a-b"})
    assert (one.direction, other.direction) == ("a>b", "b>a")
    assert (one.packets_per_second, one.bits_per_second, one.dropped_per_second) == (10, 10_000, 2)
    assert (one.queued_packets, one.dropped, one.dead) == (7, 5, True)
    assert (other.packets_per_second, other.queued_packets, other.dropped) == (0, 0, 0)
