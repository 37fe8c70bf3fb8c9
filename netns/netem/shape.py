"""The shape of one direction of a link, with the parameters of tc netem: delay, loss, rate, limit and the others.

`Shape` is the data; netns/netem/queue.py is the algorithm that applies it. `Shape.parse` reads the notation of topology
files and command lines (netns/netem/tc_parse.py); `to_dict` and `from_dict` transfer a shape to the relay as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from netns.base.naming import named
from netns.errors import ShapeError
from netns.netem.params import (
    INT32_MAX,
    MAX_JITTER_US,
    FourStates,
    GilbertElliott,
    Slot,
    check_number,
    check_percent,
)
from netns.netem.prandom import U32_MAX, U64_MAX
from netns.netem.tc_parse import parse_fields

# struct tc_netem_qopt has the delay in 32-bit ticks of 64 ns, which every kernel supports.
MAX_DELAY_US: Final = U32_MAX * 64 // 1000
MIN_RATE_BPS: Final = 8  # netem counts whole bytes per second; less than one byte would mean "unlimited"
MAX_RATE_BPS: Final = 8 * U64_MAX
NETEM_LIMIT: Final = 1000  # packets; netem's default


@dataclass(frozen=True, slots=True)
class DerivedLimit:
    """How the limit of a link follows from its rate and delay: a bandwidth-delay product beyond the delay line."""

    packet_bytes: int
    """Of a full packet on the wire, Ethernet header included."""

    delays: int = 4
    """How often the link's delay is in the round trip of its path. Leaf-spine-leaf is two such links, each way."""

    other_rtt_us: float = 0
    """What the other links of the path add to the round trip."""

    least_packets: int = 0
    """The smallest buffer, in full packets."""

    def limit_packets(self, *, rate_bps: int, delay_us: float) -> int:
        """Return the limit; netem's own without a rate, as then nothing waits."""
        if not rate_bps:
            return NETEM_LIMIT
        rtt_us = self.delays * delay_us + self.other_rtt_us
        return limit_for(
            rate_bps=rate_bps,
            delay_us=delay_us,
            buffer_bytes=max(round(rate_bps * rtt_us / 8e6), self.least_packets * self.packet_bytes),
            packet_bytes=self.packet_bytes,
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """One direction of a link. The default passes everything at once, like a bare `tc ... netem`."""

    delay_us: float = 0
    """Delay of every packet, in microseconds."""

    jitter_us: float = 0
    """Width of the variation of the delay, in microseconds; its meaning depends on `distribution`. With a rate it never
    reorders."""

    loss_percent: float = 0
    """Loss probability of each packet, 0 to 100."""

    rate_bps: int = 0
    """Bits per second on the wire, Ethernet header included; 0 is unlimited."""

    limit_packets: int = NETEM_LIMIT
    """Packets held at once, *those in the delay line included*; more are dropped. See `limit_for`."""

    seed: int | None = None
    """Seed of this direction's draws; None lets the builder of the link choose."""

    ce_threshold_us: float | None = None
    """Packets that will wait longer than this for the wire are marked (ECN: congestion experienced), whatever they
    contain: the option of this name of fq_codel and fq. Time in the delay line does not count. None never marks. netem
    has no such option (its `ecn` marks instead of losing), so only the virtual backend supports it."""

    distribution: str = "uniform"
    """Of the delay's variation: one of netns/netem/distributions.py by name, or the absolute path of a table."""

    delay_correlation_percent: float = 0
    """How much each draw of the delay depends on the one before. netem then uses the low bits of the result, so that
    at usual jitters delays are independent whatever this value; it is here because netem has it."""

    loss_model: GilbertElliott | FourStates | None = None
    """Losses in bursts, instead of `loss_percent`."""

    loss_correlation_percent: float = 0
    """How much each draw of the loss depends on the one before. netem's smoothing of uniform draws removes most of the
    losses (5 % with 25 % becomes 0.2 %): for bursts use a `loss_model`."""

    duplicate_percent: float = 0
    """Probability of each packet to be sent twice; the copy has its own draws, for example of the delay."""

    duplicate_correlation_percent: float = 0
    """How much each of these draws depends on the one before."""

    corrupt_percent: float = 0
    """Probability of each packet to have one bit flipped, anywhere in the frame: most are then dropped."""

    corrupt_correlation_percent: float = 0
    """How much each of these draws depends on the one before."""

    reorder_percent: float = 0
    """Probability of each packet, once `gap` - 1 have been delayed since the last, to skip the delay."""

    reorder_correlation_percent: float = 0
    """How much each of these draws depends on the one before."""

    gap: int = 0
    """Reorder at most one packet of so many; without `reorder_percent` exactly one. 0: 1 if packets are reordered."""

    rate_overhead_bytes: int = 0
    """Bytes on the wire for each packet beyond its length; negative for less."""

    cell_bytes: int = 0
    """Packets use whole cells of this size on the wire (ATM: 48); 0: none."""

    cell_overhead_bytes: int = 0
    """Bytes on the wire for each cell beyond its size (ATM: 5); negative for less."""

    slot: Slot | None = None
    """Packets that are due wait for a slot."""

    ecn: bool = False
    """Packets that would be lost by draw, and are ECN-capable (ECT), are marked instead."""

    trace: str | None = None
    """A file of delivery opportunities instead of a rate: see netns/netem/mahimahi.py. netem has no such option, so
    only the relay and the virtual backend support it."""

    derived_limit: DerivedLimit | None = field(default=None, compare=False)
    """What `limit_packets` follows when delay or rate change; None: it was given. No part of what the link does, so
    shapes that differ in nothing else are equal."""

    def __post_init__(self) -> None:
        check_number("delay", self.delay_us, low=0, high=MAX_DELAY_US, unit=" us")
        check_number("jitter", self.jitter_us, low=0, high=MAX_JITTER_US, unit=" us")
        for name in ("loss", "duplicate", "corrupt", "reorder"):
            check_percent(name, getattr(self, f"{name}_percent"))
            check_percent(f"{name}: correlation", getattr(self, f"{name}_correlation_percent"))
        check_percent("delay: correlation", self.delay_correlation_percent)
        check_number("rate", self.rate_bps, low=0, high=MAX_RATE_BPS, unit=" bit/s", whole=True)
        for label, name in (("overhead", "rate_overhead_bytes"), ("cell overhead", "cell_overhead_bytes")):
            check_number(f"rate: {label}", getattr(self, name), low=-INT32_MAX, high=INT32_MAX, unit="", whole=True)
        check_number("rate: cell size", self.cell_bytes, low=0, high=U32_MAX, unit=" bytes", whole=True)
        check_number("limit", self.limit_packets, low=1, high=U32_MAX, unit=" packets", whole=True)
        check_number("gap", self.gap, low=0, high=U32_MAX, unit=" packets", whole=True)
        if not isinstance(self.ecn, bool):
            raise ShapeError(f"ecn: {self.ecn!r} is neither true nor false")
        if self.seed is not None:
            check_number("seed", self.seed, low=0, high=U64_MAX, unit="", whole=True)
        if 0 < self.rate_bps < MIN_RATE_BPS:
            raise ShapeError(f"rate: {self.rate_bps} bit/s is less than {MIN_RATE_BPS} bit/s (0 is unlimited)")
        self._check_company()

    def _check_company(self) -> None:
        """Raise ShapeError for invalid combinations; mostly the ones that tc refuses."""
        if self.ce_threshold_us is not None:
            check_number("ce_threshold", self.ce_threshold_us, low=0, high=MAX_DELAY_US, unit=" us")
            if not self.rate_bps:
                raise ShapeError("ce_threshold: nothing waits on a link without a rate, so give one")
        if self.distribution != "uniform" and not self.jitter_us:
            raise ShapeError(f"distribution: {self.distribution} of a jitter of 0 is nothing; give a jitter")
        if self.loss_model is not None and self.loss_percent:
            raise ShapeError("loss: a percentage stands beside a model; keep one of the two")
        if (self.reorder_percent or self.gap) and not (self.delay_us or self.rate_bps):
            raise ShapeError("reorder: needs a delay: a packet is reordered by not being delayed as the others are")
        if self.ecn and not (self.loss_percent or self.loss_model):
            raise ShapeError("ecn: marks what would be lost, so give a loss")
        if self.trace is not None and self.rate_bps:
            raise ShapeError("trace: is given beside a rate; keep one of the two")
        if not self.rate_bps and (self.rate_overhead_bytes or self.cell_bytes or self.cell_overhead_bytes):
            raise ShapeError("rate: overhead and cells need a rate")
        if self.cell_bytes and self.cell_bytes + self.cell_overhead_bytes < 0:
            raise ShapeError(
                f"rate: a cell of {self.cell_bytes} bytes with an overhead of {self.cell_overhead_bytes} is less than 0"
            )

    @property
    def reorder_gap(self) -> int:
        """The effective gap: 0 only if nothing is reordered."""
        return self.gap or (1 if self.reorder_percent else 0)

    @property
    def reorder_chance_percent(self) -> float:
        """The probability at the end of each gap: a gap alone means 100."""
        return self.reorder_percent or (100.0 if self.gap else 0.0)

    @property
    def limited(self) -> bool:
        """Whether packets wait for those before them."""
        return bool(self.rate_bps) or self.trace is not None

    @property
    def derived(self) -> tuple[str, ...]:
        """The properties that follow from others, by their names in tc's notation."""
        return ("limit",) if self.derived_limit is not None and self.rate_bps else ()

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], *, base: Path = Path()) -> Shape:
        """Parse tc's notation: {delay: 0.5ms 100us, loss: 1%, rate: 250mbit}; see netns/netem/tc_parse.py.

        `base` is the directory for relative names of tables and traces. Raises ShapeError with key and value.
        """
        return cls(**parse_fields(mapping, base=base))

    def changed(self, mapping: Mapping[str, Any], *, base: Path = Path()) -> Shape:
        """Return this shape with the changes in `mapping`, in tc's notation; all else stays.

        A loss replaces a loss model, a rate a trace, and vice versa. A limit that was derived follows rate and delay,
        until one is given. Raises ShapeError.
        """
        return self.with_fields(changed_fields(mapping, base=base))

    def with_fields(self, changed: Mapping[str, Any]) -> Shape:
        """Return this shape with other values of some fields, as `changed_fields` returns them. Raises ShapeError."""
        shape = replace(self, **changed)
        if shape.derived_limit is None:
            return shape
        limit = shape.derived_limit.limit_packets(rate_bps=shape.rate_bps, delay_us=shape.delay_us)
        return replace(shape, limit_packets=limit)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Shape:
        """Invert `to_dict`; absent fields keep their defaults. Raises ShapeError on an unknown field."""
        return cls(**revived_fields(values))


def changed_fields(mapping: Mapping[str, Any], *, base: Path = Path()) -> dict[str, Any]:
    """Return the fields of a shape that the changes in `mapping` set, by name; what they replace is among them.

    `mapping` is in tc's notation, `base` the directory for relative names of files. Raises ShapeError.
    """
    new = parse_fields(mapping, base=base)
    for names in _EXCLUSIVE:
        if new.keys() & set(names):
            new = {name: _DEFAULTS[name] for name in names} | new
    return new


def revived_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a shape from JSON. Raises ShapeError for an unknown one, and for what is not of its kind."""
    for name in values:
        if name not in _DEFAULTS:
            raise ShapeError(f"{name}: no such field of a shape; the known ones are {', '.join(_DEFAULTS)}")
    found = dict(values)
    for name in ("distribution", "trace"):
        if not isinstance(found.get(name, ""), str | None):
            raise ShapeError(f"{name}: {found[name]!r} is not a text")
    with named("a shape's part is not as it should be: ", TypeError, error=ShapeError):
        if (model := found.get("loss_model")) is not None:
            found["loss_model"] = (FourStates if "p13_percent" in model else GilbertElliott)(**model)
        for name, part in (("slot", Slot), ("derived_limit", DerivedLimit)):
            if (value := found.get(name)) is not None:
                found[name] = part(**value)
    return found


def limit_for(*, rate_bps: int, delay_us: float, buffer_bytes: int, packet_bytes: int) -> int:
    """Return the `limit_packets` of a link that buffers `buffer_bytes` in front of a full delay line.

    netem's limit counts everything that it holds: the packets in the delay line (rate x delay), those that wait, and
    the packet being sent. `packet_bytes` is the size of a full packet on the wire, Ethernet header included.
    """
    in_flight_bytes = rate_bps * delay_us / 8e6
    return math.ceil((in_flight_bytes + buffer_bytes) / packet_bytes) + 1


def require_real(shape: Shape | None, *, at: str) -> None:
    """Raise ShapeError, with the position, if only the virtual backend supports this shape."""
    if shape is not None and shape.ce_threshold_us is not None:
        raise ShapeError(
            f"{at}: ce_threshold: neither netem nor the relay marks packets; only the virtual backend does"
        )


_DEFAULTS: Final = {field.name: field.default for field in fields(Shape)}

_EXCLUSIVE: Final = (
    ("loss_percent", "loss_correlation_percent", "loss_model"),
    ("rate_bps", "rate_overhead_bytes", "cell_bytes", "cell_overhead_bytes", "trace"),
    ("limit_packets", "derived_limit"),
)
"""A change to one of a group resets the others of the group."""
