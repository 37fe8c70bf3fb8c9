"""tc's notation for times, rates and percentages, with exactly tc's meaning.

Source: iproute2, lib/utils_math.c and lib/utils.c (get_time64, get_rate64, parse_percent). Three pitfalls:

- Suffixes ignore case, and `bps` means *bytes*: `1mbit` is 10^6 bit/s, `1MBps` and `1mbps` 8 * 10^6.
- SI prefixes are powers of 1000, IEC ones (`kibit`, `MiBps`) powers of 1024; a bare rate is in bit/s.
- A bare time is microseconds to some of tc's commands, nanoseconds to others. Here only a bare 0 is allowed.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from netns.errors import ShapeError

MAX_LENGTH: Final = 100
"""Maximum length of a value: no number needs more, and Decimal takes quadratic time for long ones."""

_NUMBER: Final = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)\s*([a-z%]*)\s*", re.IGNORECASE)

_US_PER: Final[dict[str, Decimal]] = {
    unit: scale
    for scale, units in (
        (Decimal("0.001"), ("ns", "nsec", "nsecs")),
        (Decimal(1), ("us", "usec", "usecs")),
        (Decimal(1000), ("ms", "msec", "msecs")),
        (Decimal(1_000_000), ("s", "sec", "secs")),
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


def parse_time_us(text: str | float) -> float:
    """Return the microseconds in `text` ("0.5ms", "2s", 0); ShapeError if it is no time with a unit."""
    number, unit = _split(text, example="0.5ms")
    if unit in _US_PER:
        return float(number * _US_PER[unit])
    if unit == "" and number == 0:
        return 0.0
    raise ShapeError(f"{text} is not a time: give a unit, one of s, ms, us, ns (for example 0.5ms)")


def parse_rate_bps(text: str | float) -> int:
    """Return the bits per second in `text` ("250mbit", "10MBps", 1000); ShapeError if it is no rate."""
    number, unit = _split(text, example="250mbit")
    if unit not in _BPS_PER:
        raise ShapeError(
            f"{text} is not a rate: {unit!r} is no unit of tc's (use bit, kbit, mbit, gbit, or Bps for bytes)"
        )
    return int(number * _BPS_PER[unit])


def parse_percent(text: str | float) -> float:
    """Return the percent in `text` ("1%", "0.1", 1), of any range; ShapeError if it is none."""
    number, unit = _split(text, example="1%")
    if unit not in ("", "%"):
        raise ShapeError(f"{text} is not a percentage (for example 1%)")
    return float(number)


def _split(text: str | float, *, example: str) -> tuple[Decimal, str]:
    """Split into number and lower-case unit; decimal, so that 0.1ms is 100 us and not a little more."""
    match = None if isinstance(text, bool) or len(str(text)) > MAX_LENGTH else _NUMBER.fullmatch(str(text))
    if match is None:
        raise ShapeError(f"{text!r} is not a number with a unit (for example {example})")
    return Decimal(match[1]), match[2].lower()
