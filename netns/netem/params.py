"""The structured parameters of a shape: netem's models of loss in bursts, and its slots.

Sources: tc-netem(8); S. Salsano, F. Ludovici, A. Ordine, D. Giannuzzi, "Definition of a general and intuitive loss
model for packet networks and its implementation in the Netem module in the Linux kernel", 2012, for both loss models.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from netns.errors import ShapeError

INT32_MAX: Final = 2**31 - 1
MAX_JITTER_US: Final = INT32_MAX // 1000  # netem caps what it draws from at INT_MAX ns
MAX_SLOT_US: Final = (2**63 - 1) // 1000


@dataclass(frozen=True, slots=True)
class GilbertElliott:
    """tc's `loss gemodel`: a good and a bad state, each with its own loss probability; two draws for each packet.

    The share of lost packets is p / (p + r) x bad + r / (p + r) x good, with p and r as below; bursts last 1 / r
    packets on average if the bad state loses all.
    """

    p_percent: float
    """Probability per packet to go from the good state to the bad one."""

    r_percent: float
    """Probability per packet to go back. tc's default is 100 - p: then losses are independent."""

    bad_loss_percent: float = 100
    """Loss probability in the bad state, tc's 1-h. By default all is lost, as in E. N. Gilbert's model."""

    good_loss_percent: float = 0
    """Loss probability in the good state, tc's 1-k."""

    def __post_init__(self) -> None:
        for field in fields(self):
            check_percent(f"loss: gemodel: {field.name.removesuffix('_percent')}", getattr(self, field.name))


@dataclass(frozen=True, slots=True)
class FourStates:
    """tc's `loss state`: a Markov chain of four states, one draw for each packet.

    1 sends (in a gap), 2 sends (in a burst), 3 loses (in a burst), 4 loses a single packet (in a gap).
    """

    p13_percent: float
    """Probability to begin a burst."""

    p31_percent: float
    """Probability to end a burst. tc's default is 100 - p13."""

    p32_percent: float = 0
    """Probability that a burst continues with packets that are sent."""

    p23_percent: float = 100
    """Probability that it returns to losing after these."""

    p14_percent: float = 0
    """Probability of a single loss outside a burst."""

    def __post_init__(self) -> None:
        for field in fields(self):
            check_percent(f"loss: state: {field.name.removesuffix('_percent')}", getattr(self, field.name))
        for names, total in (
            ("p13 + p14", self.p13_percent + self.p14_percent),
            ("p31 + p32", self.p31_percent + self.p32_percent),
        ):
            if total > 100:  # the kernel would add them in 32 bits, and overflow
                raise ShapeError(f"loss: state: {names} is {total:g} %, and they exclude each other: at most 100 %")


@dataclass(frozen=True, slots=True)
class Slot:
    """tc's `slot`: packets that are due wait for a slot, and leave together when it opens, as on Wi-Fi or LTE.

    The time between slots is uniform in `min_us`..`max_us`, or of a distribution (then those two are 0).
    """

    min_us: float = 0
    """Minimum time from slot to slot."""

    max_us: float = 0
    """Maximum time from slot to slot."""

    packets: int = 0
    """The number of packets in a slot; 0: any number."""

    bytes: int = 0
    """The number of bytes in a slot, the last packet whole; 0: any number."""

    distribution: str | None = None
    """Name of the distribution of the time between slots, or the file of its table; None: uniform."""

    delay_us: float = 0
    """Its mean."""

    jitter_us: float = 0
    """Its width."""

    def __post_init__(self) -> None:
        for name in ("min_us", "max_us", "delay_us"):
            label = f"slot: {name.removesuffix('_us')}"
            check_number(label, getattr(self, name), low=0, high=MAX_SLOT_US, unit=" us")
        check_number("slot: jitter", self.jitter_us, low=0, high=MAX_JITTER_US, unit=" us")
        for name in ("packets", "bytes"):
            check_number(f"slot: {name}", getattr(self, name), low=0, high=INT32_MAX, unit="", whole=True)
        if self.max_us < self.min_us:
            raise ShapeError(f"slot: max: {self.max_us:g} us is less than min, {self.min_us:g} us")
        if self.distribution is not None:
            if self.min_us or self.max_us:
                raise ShapeError("slot: min and max stand beside a distribution; keep one of the two")
            if self.distribution == "uniform":
                raise ShapeError("slot: a uniform distribution is given by its bounds: slot MIN MAX")
            if not self.jitter_us:
                raise ShapeError(
                    "slot: distribution: a jitter of 0 us means no slots to netem; give one, or min and max"
                )
        elif self.delay_us or self.jitter_us:
            raise ShapeError("slot: a delay and a jitter need the distribution that they describe; give its name")
        elif not self.max_us:
            raise ShapeError("slot: a time of 0 us means no slots to netem; give one, or leave slot out")


def check_number(name: str, value: object, *, low: float, high: float, unit: str, whole: bool = False) -> None:
    """Raise ShapeError unless `value` is a number (an int if `whole`) in low..high; NaN is in no range."""
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise ShapeError(f"{name}: {value!r} is not {'an integer' if whole else 'a number'}")
    if not low <= value <= high:
        shown = value if isinstance(value, int) else f"{value:.16g}"
        raise ShapeError(f"{name}: {shown}{unit} is not between {low}{unit} and {high}{unit}")


def check_percent(name: str, value: object) -> None:
    """Raise ShapeError unless `value` is a number in 0..100."""
    check_number(name, value, low=0, high=100, unit=" %")
