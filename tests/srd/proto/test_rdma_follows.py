"""Placement hints: an owner may overwrite all that a hint allows.

After every batch the owner overwrites everything that according to the last hint has not landed, as wrong predictions
would (srd.io.placement_predictor). What is written or read must be right all the same.
"""

from __future__ import annotations

from typing import Any

import pytest

from netns.netem.shape import Shape
from srd.proto.events import PlacementHint, ReceiveResult
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from tests.simulation import Conditions, Node
from tests.srd.proto.contract import MIB, START_B, Pair

SPOILED = 0xDD
CONDITIONS = {
    "calm": Conditions(),
    "reordered": Conditions(reorder_s=0.003),
    "doubled": Conditions(duplicate=0.2, reorder_s=0.001),
}


def overwrite_hinted(node: Node) -> list[PlacementHint]:
    """Have a node's owner overwrite what hints allow; return the hints that it gets."""
    handle = node.core.handle_packets
    hints: list[PlacementHint] = []
    held: list[PlacementHint] = []

    def overwriting(*args: Any, **options: Any) -> ReceiveResult:
        result = handle(*args, **options)
        for hint in held:  # before the batch is placed, as the kernel would do
            node.target[hint.target : hint.target + hint.length] = SPOILED
        if result.copies:
            last = result.copies[-1].hint
            held[:] = [] if last is None else [last]
            hints.extend(held)
        return result

    node.core.handle_packets = overwriting  # type: ignore[method-assign]
    return hints


@pytest.mark.sources
@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_write__is_right_whatever_is_predicted(conditions: str, seed: int) -> None:
    pair = Pair(seed=seed, shape=Shape(delay_us=500, loss_percent=5), conditions=CONDITIONS[conditions])
    hints = overwrite_hinted(pair.b)
    pair.write(1, length=MIB, at=77, offset=4321)
    pair.write(2, length=MIB // 2, at=5, offset=4321 + MIB)
    pair.run(1, 2)
    assert pair.statuses() == {1: Status.OK, 2: Status.OK}
    assert pair.written(4321, MIB) == pair.a.region[77 : 77 + MIB].tobytes()
    assert pair.written(4321 + MIB, MIB // 2) == pair.a.region[5 : 5 + MIB // 2].tobytes()
    assert pair.untouched(pair.b, (4321, MIB + MIB // 2))
    assert hints
    assert {hint.opcode for hint in hints} == {Opcode.WRITE}


@pytest.mark.sources
@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_read__is_right_whatever_is_predicted(conditions: str, seed: int) -> None:
    pair = Pair(seed=seed, shape=Shape(delay_us=500, loss_percent=5), conditions=CONDITIONS[conditions])
    hints = overwrite_hinted(pair.a)
    pair.read(1, length=MIB, offset=99, to=1234)
    pair.read(2, length=MIB // 2, offset=7, to=1234 + MIB)
    pair.run(1, 2)
    assert pair.statuses() == {1: Status.OK, 2: Status.OK}
    assert pair.fetched(1234, MIB) == pair.b.region[START_B + 99 : START_B + 99 + MIB].tobytes()
    assert pair.fetched(1234 + MIB, MIB // 2) == pair.b.region[START_B + 7 : START_B + 7 + MIB // 2].tobytes()
    assert pair.untouched(pair.a, (1234, MIB + MIB // 2))
    assert {hint.opcode for hint in hints} == {Opcode.RESPONSE}


@pytest.mark.sources
@pytest.mark.parametrize("immediate", [0, 4321])
def test_write__with_an_immediate_gives_no_hints(immediate: int) -> None:
    pair = Pair()
    hints = overwrite_hinted(pair.b)
    pair.write(1, length=MIB, at=0, offset=4321, immediate=immediate)
    pair.run(1)
    assert pair.statuses() == {1: Status.OK}
    assert not hints


@pytest.mark.parametrize(
    ("landed", "left"),
    [(0, PlacementHint(1, 2, 2, 100, 1000, 50)), (20, PlacementHint(1, 2, 2, 120, 1020, 30)), (50, None), (51, None)],
)
def test_after__what_has_landed_is_not_hinted_at(landed: int, left: PlacementHint | None) -> None:
    assert PlacementHint(1, 2, 2, 100, 1000, 50).after(landed) == left
