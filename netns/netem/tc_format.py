"""Format a shape as the arguments that follow `netem` on tc's command line, to read and to reproduce by hand.

Defaults are omitted, except the limit. A trace, which tc does not support, is included, too.
"""

from __future__ import annotations

from netns.netem.params import FourStates, GilbertElliott
from netns.netem.shape import Shape


def netem_arguments(shape: Shape) -> tuple[str, ...]:
    """Return the arguments, one by one."""
    arguments = ["limit", str(shape.limit_packets)]
    if shape.delay_us or shape.jitter_us:
        arguments += ["delay", _time(shape.delay_us)]
        if shape.jitter_us:
            arguments += [_time(shape.jitter_us), *_correlation(shape.delay_correlation_percent)]
            if shape.distribution != "uniform":
                arguments += ["distribution", shape.distribution]
    arguments += _loss_arguments(shape)
    for name in ("duplicate", "corrupt"):
        if percent := getattr(shape, f"{name}_percent"):
            arguments += [name, _percent(percent), *_correlation(getattr(shape, f"{name}_correlation_percent"))]
    if shape.reorder_chance_percent:
        arguments += ["reorder", _percent(shape.reorder_chance_percent)]
        arguments += [*_correlation(shape.reorder_correlation_percent), "gap", str(shape.reorder_gap)]
    if shape.rate_bps:
        framing = (shape.rate_overhead_bytes, shape.cell_bytes, shape.cell_overhead_bytes)
        arguments += ["rate", _rate(shape.rate_bps), *(map(str, framing) if any(framing) else ())]
    arguments += _slot_arguments(shape)
    arguments += ["ecn"] if shape.ecn else []
    arguments += ["trace", shape.trace] if shape.trace is not None else []
    return (*arguments, *(() if shape.seed is None else ("seed", str(shape.seed))))


def _loss_arguments(shape: Shape) -> list[str]:
    match shape.loss_model:
        case GilbertElliott() as model:
            percents = (model.p_percent, model.r_percent, model.bad_loss_percent, model.good_loss_percent)
            return ["loss", "gemodel", *map(_percent, percents)]
        case FourStates() as chain:
            percents_5 = (
                chain.p13_percent, chain.p31_percent, chain.p32_percent, chain.p23_percent, chain.p14_percent,
            )  # fmt: skip
            return ["loss", "state", *map(_percent, percents_5)]
    if not shape.loss_percent:
        return []
    return ["loss", "random", _percent(shape.loss_percent), *_correlation(shape.loss_correlation_percent)]


def _slot_arguments(shape: Shape) -> list[str]:
    slot = shape.slot
    if slot is None:
        return []
    arguments = ["slot", _time(slot.min_us), _time(slot.max_us)]
    if slot.distribution is not None:
        arguments = ["slot", "distribution", slot.distribution, _time(slot.delay_us), _time(slot.jitter_us)]
    arguments += ["packets", str(slot.packets)] if slot.packets else []
    return arguments + (["bytes", str(slot.bytes)] if slot.bytes else [])


def _time(us: float) -> str:
    """Format a time in the largest unit that it fills, as tc does; with decimals, as older versions have no `ns`."""
    for unit, size_us in (("s", 1e6), ("ms", 1e3)):
        if us >= size_us and float(scaled := _plain(us / size_us)) * size_us == us:
            return f"{scaled}{unit}"
    return f"{_plain(us)}us"


def _rate(bps: int) -> str:
    """Format a rate in the largest unit of which it is a whole number, as tc does."""
    for unit, size_bps in (("tbit", 10**12), ("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)):
        if bps and bps % size_bps == 0:
            return f"{bps // size_bps}{unit}"
    return f"{bps}bit"


def _percent(percent: float) -> str:
    return f"{_plain(percent)}%"


def _correlation(percent: float) -> tuple[str, ...]:
    return (_percent(percent),) if percent else ()


def _plain(number: float) -> str:
    """Format without exponent and without trailing zeros."""
    return f"{number:.9f}".rstrip("0").rstrip(".")
