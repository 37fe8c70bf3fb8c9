"""scripts.benches.fidelity.measures: recordings of the model, of equal and of different links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netns.netem.queue import Netem
from netns.netem.shape import Shape
from netns.netem.tc_parse import KEYS
from scripts.benches.fidelity.measures import BOUND, compare
from scripts.benches.fidelity.settings import LENGTH_BYTES, SEEDED, SETTINGS, Setting, write_tables
from scripts.benches.fidelity.trial import INTACT, MARKED, Recording

PACKETS = 10_000
ALPHA = 0.01 / 50


class Numbered:
    """Packets as (number, flags)."""

    def length_bytes(self, packet: tuple[int, int]) -> int:
        return LENGTH_BYTES + 0 * packet[0]

    def copied(self, packet: tuple[int, int]) -> tuple[int, int]:
        return packet

    def corrupted(self, packet: tuple[int, int], *, draw: object) -> tuple[int, int]:  # noqa: ARG002
        return packet[0], packet[1] & ~INTACT

    def marked(self, packet: tuple[int, int]) -> tuple[int, int]:
        return packet[0], packet[1] | MARKED


def recorded(shape: Shape, *, seed: int, interval_us: float = 100, late_ns: int = 0) -> Recording:
    """Return the recording of the model by an ideal host, or by one that writes everything `late_ns` late."""
    print(f"seed {seed}")
    netem: Netem[tuple[int, int]] = Netem(shape, seed=seed, ops=Numbered())
    entered = (np.arange(PACKETS) * interval_us * 1000).astype(np.int64)
    left: list[tuple[int, int, int]] = []
    for number, now in enumerate([*entered.tolist(), 2**62]):
        while (at := netem.next_at_ns) is not None and at <= now:
            if (due := netem.dequeue(at)) is not None:
                left.append((due[0] + late_ns, *due[1]))
        if number < PACKETS:
            netem.enqueue(now, packet=(number, INTACT), length_bytes=LENGTH_BYTES)
    at_ns, numbers, flags = (np.array(column, dtype=np.int64) for column in zip(*left, strict=True))
    return Recording(entered, at_ns, numbers, flags)


def failures(setting: Setting, first: Recording, second: Recording, *, directory: Path) -> list[str]:
    return [
        each.measure
        for measure in setting.measures
        for each in compare(measure, setting.shape(directory), kernel=first, relay=second, length_bytes=LENGTH_BYTES)
        if each.failed(alpha=ALPHA)
    ]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_compare__same_link_has_no_difference(setting: Setting, tmp_path: Path) -> None:
    write_tables(tmp_path)
    shape = setting.shape(tmp_path)
    first, second = (recorded(shape, seed=seed, interval_us=setting.interval_us) for seed in (101, 102))
    assert failures(setting, first, second, directory=tmp_path) == []


# For each measure a slightly different link, which must be detected.
OTHERS: dict[str, dict[str, Any]] = {
    "delay-normal": {"delay": "700ms 175ms", "distribution": "normal"},
    "delay-pareto": {"delay": "400ms 300ms", "distribution": "paretonormal"},
    "loss-10": {"loss": "14%"},
    "loss-gilbert": {"loss": "10%"},
    "loss-state-4": {"loss": "state 2% 50% 10% 40% 4%"},
    "duplicate": {"duplicate": "8%"},
    "corrupt": {"corrupt": "8%"},
    "reorder": {"delay": "50ms", "reorder": "33%"},
    "gap": {"delay": "50ms", "gap": 6},
    "ecn": {"loss": "14%", "ecn": True},
    "rate": {"rate": "8.5mbit"},
    "rate-cells": {"rate": "16mbit 20 48 7"},
    "limit": {"rate": "8mbit", "limit": 5000},
    "slot": {"slot": "10ms 45ms packets 40"},
    "delay": {"delay": "103ms"},
}


@pytest.mark.parametrize("name", OTHERS)
def test_compare__detects_a_different_link(name: str, tmp_path: Path) -> None:
    (setting,) = (each for each in SETTINGS if each.name == name)
    first = recorded(setting.shape(tmp_path), seed=1, interval_us=setting.interval_us)
    other = Shape.parse({"limit": 100_000, **OTHERS[name]})
    second = recorded(other, seed=2, interval_us=setting.interval_us)
    assert failures(setting, first, second, directory=tmp_path)


def test_compare__detects_a_late_host(tmp_path: Path) -> None:
    (setting,) = (each for each in SETTINGS if each.name == "delay")
    shape = setting.shape(tmp_path)
    late_ns = round(shape.delay_us * 1000 * BOUND * 1.1)
    first, second = recorded(shape, seed=1), recorded(shape, seed=1, late_ns=late_ns)
    assert failures(setting, first, second, directory=tmp_path) == ["delay"]


def test_settings__cover_every_property_of_netem() -> None:
    """Jitter is the second argument of their delays; a trace and a threshold of marks are not netem's."""
    arguments = {key for setting in (*SETTINGS, SEEDED) for key in setting.arguments}
    assert arguments == set(KEYS) - {"jitter", "trace", "ce_threshold"}
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)
