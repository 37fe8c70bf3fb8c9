"""Sizes, durations, rates and counts as people write them: one notation for command lines, settings and topologies.

    size       512, 4K, 1.5G, 256MiB       bytes; K, M, G, T, P and KiB, MiB ... are powers of 1024, KB, MB ... of 1000
    duration   500us, 0.5ms, 60s, 5min     ns, us, ms, s, min, h, d; a bare number only if it is 0
    rate       250mbit, 1.5gbit, 10MBps    bit/s, tc's: bit, kbit, mbit, gbit, tbit; bps are *bytes* a second
    count      5000, 100K, 1.5M            K, M, G, T are powers of 1000
    percent    1%, 0.1

Units ignore case, and a space may stand before them. Fractions are decimal, so that 0.1ms is 100 us and not a little
more. Each parser takes a number, too, as YAML has them, and raises UnitError for all else, with the value and an
example.

Sources. Durations, rates and percentages are a superset of tc's (iproute2, lib/utils_math.c and lib/utils.c:
get_time64, get_rate64, parse_percent), hence of the notation of `tc qdisc ... netem`. To some of tc's commands a bare
time is microseconds, to others nanoseconds, and to most other programs seconds: so here it needs a unit. SI prefixes
of rates are powers of 1000, IEC ones (`kibit`, `MiBps`) powers of 1024. Sizes are those of coreutils (dd, ls).

Quantities of Kubernetes (500m, 16Gi) are that project's notation: netns/inventory/quantity.py.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

MAX_LENGTH: Final = 100
"""Maximum length of a value: no number needs more, and Decimal takes quadratic time for long ones."""

_NUMBER: Final = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)\s*([a-z%]*)\s*", re.IGNORECASE | re.ASCII)

_US_PER: Final[dict[str, Decimal]] = {
    unit: Decimal(scale)
    for scale, units in (
        ("0.001", ("ns", "nsec", "nsecs")),
        ("1", ("us", "usec", "usecs")),
        ("1e3", ("ms", "msec", "msecs")),
        ("1e6", ("s", "sec", "secs")),
        ("60e6", ("min",)),
        ("3600e6", ("h",)),
        ("86400e6", ("d",)),
    )
    for unit in units
}

_PREFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_IEC_PREFIXES: Final = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_BPS_PER: Final[dict[str, int]] = {"": 1} | {
    prefix + unit: scale * bits
    for prefix, scale in (_PREFIXES | _IEC_PREFIXES).items()
    for unit, bits in (("bit", 1), ("bps", 8))
}
_BYTES_PER: Final[dict[str, int]] = {"": 1, "b": 1} | {
    prefix + tail: base**power
    for power, prefix in enumerate("kmgtp", 1)
    for tail, base in (("", 1024), ("ib", 1024), ("b", 1000))
}


class UnitError(ValueError):
    """A text is not in this notation."""


def parse_size(text: str | float) -> int:
    """Return the bytes in `text` ("256M", "1.5G", 4096), fractions of a byte rounded down; UnitError if it is none."""
    number, unit = _split(text, example="256M")
    if unit not in _BYTES_PER or number < 0:
        raise UnitError(f"{text} is not a size: give bytes, or a number with K, M, G or T (for example 256M)")
    return int(number * _BYTES_PER[unit])


def parse_duration_us(text: str | float) -> float:
    """Return the microseconds in `text` ("0.5ms", "2s", 0), of either sign; UnitError if it is no time with a unit."""
    number, unit = _split(text, example="0.5ms")
    if unit in _US_PER:
        return float(number * _US_PER[unit])
    if unit == "" and number == 0:
        return 0.0
    raise UnitError(f"{text} is not a time: give a unit, one of d, h, min, s, ms, us, ns (for example 0.5ms)")


def parse_rate_bps(text: str | float) -> int:
    """Return the bits per second in `text` ("250mbit", "10MBps", 1000); UnitError if it is no rate."""
    number, unit = _split(text, example="250mbit")
    if unit not in _BPS_PER:
        raise UnitError(
            f"{text} is not a rate: {unit!r} is no unit of tc's (use bit, kbit, mbit, gbit, or Bps for bytes)"
        )
    return int(number * _BPS_PER[unit])


def parse_count(text: str | float) -> int:
    """Return the number in `text` ("100K", "1.5M", 5000); UnitError if it is none, or no whole one."""
    number, unit = _split(text, example="100K")
    scaled = number * _PREFIXES.get(unit, 0)
    if unit not in _PREFIXES or scaled != int(scaled):
        raise UnitError(f"{text} is not a whole number: give one, or one with K, M, G or T (for example 100K)")
    return int(scaled)


def parse_percent(text: str | float) -> float:
    """Return the percent in `text` ("1%", "0.1", 1), of any range; UnitError if it is none."""
    number, unit = _split(text, example="1%")
    if unit not in ("", "%"):
        raise UnitError(f"{text} is not a percentage (for example 1%)")
    return float(number)


def _split(text: str | float, *, example: str) -> tuple[Decimal, str]:
    """Split into number and lower-case unit; decimal, so that 0.1ms is 100 us and not a little more."""
    match = None if isinstance(text, bool) or len(str(text)) > MAX_LENGTH else _NUMBER.fullmatch(str(text))
    if match is None:
        raise UnitError(f"{text!r} is not a number with a unit (for example {example})")
    return Decimal(match[1]), match[2].lower()
