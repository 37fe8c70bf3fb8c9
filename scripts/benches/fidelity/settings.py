"""The settings: sets that cover all of netem's parameters, and the measures that are compared for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from netns.netem.shape import Shape

Measure = Literal[
    "delays",
    "delay",
    "losses",
    "bursts",
    "duplicates",
    "corrupted",
    "reordered",
    "marked",
    "rate",
    "overlimit",
    "slots",
]

PACKETS: Final = 20_000
LENGTH_BYTES: Final = 200
INTERVAL_US: Final = 100.0
SLOW_US: Final = 300.0  # where a packet's lateness matters: the load is low on both hosts


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    arguments: Mapping[str, Any]
    measures: tuple[Measure, ...]
    interval_us: float = INTERVAL_US
    length_bytes: int = LENGTH_BYTES
    packets: int = field(default=PACKETS)

    def shape(self, directory: Path) -> Shape:
        """Return the shape; tables lie in `directory` (see `write_tables`)."""
        return Shape.parse({"limit": 100_000, **self.arguments}, base=directory)

    def to_dict(self, directory: Path) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": self.shape(directory).to_dict(),
            "packets": self.packets,
            "interval_us": self.interval_us,
            "length_bytes": self.length_bytes,
        }


def write_tables(directory: Path) -> None:
    """Write a distribution table with two peaks, at the minimum and at the maximum delay."""
    humps = [*range(-8192, -4096, 4), *range(4096, 8192, 4)]
    (directory / "humps.dist").write_text("# two humps\n" + "\n".join(map(str, humps)) + "\n")


SETTINGS: Final = (
    Setting("delay", {"delay": "100ms"}, ("delay",), interval_us=SLOW_US),
    Setting("delay-uniform", {"delay": "400ms 150ms"}, ("delays",), interval_us=SLOW_US),
    Setting("delay-correlated", {"delay": "400ms 150ms 25%"}, ("delays",), interval_us=SLOW_US),
    Setting("delay-normal", {"delay": "700ms 150ms", "distribution": "normal"}, ("delays",), interval_us=SLOW_US),
    Setting("delay-pareto", {"delay": "400ms 300ms", "distribution": "pareto"}, ("delays",), interval_us=SLOW_US),
    Setting(
        "delay-paretonormal", {"delay": "400ms 200ms", "distribution": "paretonormal"}, ("delays",), interval_us=SLOW_US
    ),
    Setting("delay-table", {"delay": "400ms 200ms", "distribution": "humps.dist"}, ("delays",), interval_us=SLOW_US),
    Setting("loss-1", {"loss": "1%"}, ("losses", "bursts")),
    Setting("loss-10", {"loss": "10%"}, ("losses", "bursts")),
    Setting("loss-correlated", {"loss": "25% 50%"}, ("bursts",)),
    Setting("loss-gilbert", {"loss": "gemodel 1% 10%"}, ("bursts",)),
    Setting("loss-gilbert-elliott", {"loss": "gemodel 5% 40% 70% 0.5%"}, ("bursts",)),
    Setting("loss-state-2", {"loss": "state 1% 20%"}, ("bursts",)),
    Setting("loss-state-4", {"loss": "state 2% 50% 10% 40% 1%"}, ("bursts",)),
    Setting("duplicate", {"duplicate": "5%"}, ("duplicates",)),
    Setting("duplicate-correlated", {"duplicate": "25% 25%"}, ("duplicates",)),
    Setting("duplicate-loss", {"duplicate": "20%", "loss": "20%"}, ("duplicates", "losses")),
    Setting("corrupt", {"corrupt": "5%"}, ("corrupted",), length_bytes=130),
    Setting("corrupt-correlated", {"corrupt": "25% 25%"}, ("corrupted",), length_bytes=130),
    Setting("reorder", {"delay": "50ms", "reorder": "25%"}, ("reordered",)),
    Setting("reorder-correlated", {"delay": "50ms", "reorder": "50% 25%", "gap": 3}, ("reordered",)),
    Setting("gap", {"delay": "50ms", "gap": 5}, ("reordered",)),
    Setting("ecn", {"loss": "10%", "ecn": True}, ("marked",)),
    Setting("rate", {"rate": "8mbit"}, ("rate",)),
    Setting("rate-cells", {"rate": "16mbit 20 48 5"}, ("rate",)),
    Setting("rate-jitter", {"rate": "8mbit", "delay": "10ms 5ms"}, ("rate",)),
    Setting("limit", {"rate": "8mbit", "limit": 50}, ("rate", "overlimit")),
    Setting("slot", {"slot": "10ms 30ms packets 40"}, ("slots",)),
    Setting("slot-bytes", {"slot": "15ms bytes 7900"}, ("slots",)),
    Setting("slot-distribution", {"slot": "distribution normal 20ms 4ms packets 40"}, ("slots",)),
    Setting(
        "everything",
        {
            "delay": "400ms 150ms", "distribution": "normal", "loss": "gemodel 1% 20%", "duplicate": "2%",
            "corrupt": "1%", "reorder": "5%",
        },
        ("delays", "bursts", "duplicates", "corrupted"),
        interval_us=SLOW_US,
    ),
)  # fmt: skip

SEEDED: Final = Setting("seed", {"loss": "10%", "seed": 42424242}, ("losses", "bursts"))
"""In addition: exactly the same drops, if the kernel supports seeds."""
