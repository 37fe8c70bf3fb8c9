"""What one direction of a link does to packets: delay, jitter, loss, rate and limit, as tc netem has them.

`Shape` is the data; netns/netem.py holds the algorithm that applies it. `Shape.parse` reads the notation of
topology files (tc's units, netns/units.py); `to_dict` and `from_dict` carry a shape to the relay as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from netns.errors import ShapeError
from netns.prandom import U32_MAX, U64_MAX
from netns.units import parse_percent, parse_rate_bps, parse_time_us

# struct tc_netem_qopt carries the delay in 32-bit ticks of 64 ns, and netem caps the jitter at INT_MAX ns.
MAX_DELAY_US: Final = U32_MAX * 64 // 1000
MAX_JITTER_US: Final = (2**31 - 1) // 1000
MIN_RATE_BPS: Final = 8  # netem counts whole bytes per second; less than one byte would mean "unlimited"
MAX_RATE_BPS: Final = 8 * U64_MAX


@dataclass(frozen=True, slots=True)
class Shape:
    """One direction of a link. The default passes everything at once, as a bare `tc ... netem` does."""

    delay_us: float = 0
    """Constant delay of every packet, in microseconds."""

    jitter_us: float = 0
    """Half-width of the uniform variation of the delay, in microseconds. With a rate it never reorders."""

    loss_percent: float = 0
    """Chance of each packet to be lost, 0 to 100, drawn independently."""

    rate_bps: int = 0
    """Bits per second on the wire, Ethernet header included; 0 is unlimited."""

    limit_packets: int = 1000
    """Packets held at once, *those in the delay line included*; more are dropped. See `limit_for`."""

    seed: int | None = None
    """Seed of this direction's draws; None leaves the choice to whoever builds the link."""

    ce_threshold_us: float | None = None
    """Packets that will wait longer than this for the wire are marked (ECN: congestion experienced), whatever they
    hold: fq_codel's and fq's option of this name. Time in the delay line does not count. None never marks. netem has
    no such thing (its `ecn` marks instead of losing), so that the virtual fabric alone can do it."""

    def __post_init__(self) -> None:
        _check("delay", self.delay_us, low=0, high=MAX_DELAY_US, unit=" us")
        _check("jitter", self.jitter_us, low=0, high=MAX_JITTER_US, unit=" us")
        _check("loss", self.loss_percent, low=0, high=100, unit=" %")
        _check("rate", self.rate_bps, low=0, high=MAX_RATE_BPS, unit=" bit/s", whole=True)
        _check("limit", self.limit_packets, low=1, high=U32_MAX, unit=" packets", whole=True)
        if self.seed is not None:
            _check("seed", self.seed, low=0, high=U64_MAX, unit="", whole=True)
        if 0 < self.rate_bps < MIN_RATE_BPS:
            raise ShapeError(f"rate: {self.rate_bps} bit/s is less than {MIN_RATE_BPS} bit/s (0 is unlimited)")
        if self.ce_threshold_us is not None:
            _check("ce_threshold", self.ce_threshold_us, low=0, high=MAX_DELAY_US, unit=" us")
            if not self.rate_bps:
                raise ShapeError("ce_threshold: nothing waits on a link without a rate, so give one")

    @classmethod
    def parse(cls, mapping: Mapping[str, Any]) -> Shape:
        """Read tc's notation: {delay: 0.5ms, jitter: 100us, loss: 1%, rate: 250mbit, limit: 9, seed: 7}.

        Raises ShapeError that names the key and the value.
        """
        if not isinstance(mapping, Mapping):
            raise ShapeError(f"{mapping!r} is not a shape: want keys out of {_known_keys()}")
        values = {}
        for key, value in mapping.items():
            if key not in _NOTATION:
                raise ShapeError(f"{key}: no such property of a link; the known ones are {_known_keys()}")
            name, parse = _NOTATION[key]
            try:
                values[name] = parse(value)
            except ShapeError as error:
                raise ShapeError(f"{key}: {error}") from None
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Shape:
        """Invert `to_dict`; absent fields keep their defaults. Raises ShapeError on an unknown field."""
        known = [field.name for field in fields(cls)]
        for name in values:
            if name not in known:
                raise ShapeError(f"{name}: no such field of a shape; the known ones are {', '.join(known)}")
        return cls(**values)


def limit_for(*, rate_bps: int, delay_us: float, buffer_bytes: int, packet_bytes: int) -> int:
    """Return the `limit_packets` of a link that buffers `buffer_bytes` in front of a full delay line.

    netem's limit counts whatever it holds: what is in flight on the wire (rate x delay), what waits, and the
    packet being sent. `packet_bytes` is the size of a full packet on the wire, Ethernet header included.
    """
    in_flight_bytes = rate_bps * delay_us / 8e6
    return math.ceil((in_flight_bytes + buffer_bytes) / packet_bytes) + 1


def require_real(shape: Shape | None, *, at: str) -> None:
    """ShapeError, naming the place, if only the virtual fabric can give a link this shape."""
    if shape is not None and shape.ce_threshold_us is not None:
        raise ShapeError(f"{at}: ce_threshold: neither netem nor the relay marks packets; only the virtual fabric does")


def _check(name: str, value: object, *, low: int, high: int, unit: str, whole: bool = False) -> None:
    """ShapeError unless `value` is a number (an int if `whole`) in low..high; NaN is in no range."""
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise ShapeError(f"{name}: {value!r} is not {'an integer' if whole else 'a number'}")
    if not low <= value <= high:
        shown = value if isinstance(value, int) else f"{value:.16g}"
        raise ShapeError(f"{name}: {shown}{unit} is not between {low}{unit} and {high}{unit}")


def _as_given(value: Any) -> Any:
    """Leave the value to __post_init__, which judges types and ranges."""
    return value


_NOTATION: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "delay": ("delay_us", parse_time_us),
    "jitter": ("jitter_us", parse_time_us),
    "loss": ("loss_percent", parse_percent),
    "rate": ("rate_bps", parse_rate_bps),
    "limit": ("limit_packets", _as_given),
    "seed": ("seed", _as_given),
    "ce_threshold": ("ce_threshold_us", parse_time_us),
}


def _known_keys() -> str:
    return ", ".join(_NOTATION)
