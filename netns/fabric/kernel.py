"""A shape as the arguments of `tc qdisc ... netem`.

Every attribute is always sent, whatever its value: netem keeps a rate that a change does not mention
(net/sched/sch_netem.c, netem_change), so "no rate" has to be said. The one exception is a loss of nothing, which some
versions of iproute2 refuse to parse and which netem takes from a missing attribute. The rate is netem's own rather than
another qdisc's above it: only then does the limit cover both the queue and the delay line.

The draws are the kernel's: iproute2 learnt `seed` later than netem did, so a shape's seed rules the relay fabric only.
"""

from __future__ import annotations

from netns.shape import Shape


def netem_arguments(shape: Shape) -> tuple[str, ...]:
    """What follows `netem`; times in microseconds with decimals, because older versions of tc know no `ns`."""
    arguments = ["limit", str(shape.limit_packets)]
    arguments += ["delay", f"{_plain(shape.delay_us)}us", f"{_plain(shape.jitter_us)}us"]
    if shape.loss_percent:
        arguments += ["loss", "random", f"{_plain(shape.loss_percent)}%"]
    return (*arguments, "rate", f"{shape.rate_bps}bit")


def _plain(number: float) -> str:
    """Without exponent, and no more decimals than it has."""
    return f"{number:.9f}".rstrip("0").rstrip(".")
