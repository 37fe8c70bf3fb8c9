"""What the command line chooses of a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from srd.compare.errors import GridError
from srd.compare.overrides import overridden
from srd.compare.traffic import File
from tests.srd.compare.cases import FILE_GRID, GRID


def test_choice__nothing_is_all() -> None:
    assert overridden(GRID) == GRID


def test_choice__in_the_grids_order() -> None:
    chosen = overridden(GRID, transports="mptcp, srd", conditions="dead", seeds=3)
    assert (chosen.transports, list(chosen.conditions), chosen.seeds) == (("srd", "mptcp"), ["dead"], (1, 2, 3))
    assert (chosen.workloads, chosen.fabrics) == (GRID.workloads, GRID.fabrics)


def test_choice__of_a_file(tmp_path: Path) -> None:
    own = tmp_path / "own.iso"
    own.write_bytes(b"abc")
    assert overridden(FILE_GRID, file=own).workloads == {"file": File(3, str(own))}
    assert overridden(FILE_GRID, size_bytes=2 << 20).workloads == {"file": File(2 << 20)}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"conditions": "clean,fog"}, "--conditions: 'fog' is none of clean, dead"),
        ({"transports": "quic"}, "--transports: 'quic' is none of srd, cubic, bbr, mptcp"),
        ({"size_bytes": 1 << 20, "file": Path("x")}, "--file, --size: give one of them"),
        ({"size_bytes": 0}, "--size: 0 is not between 1 and"),
        ({"file": Path("nowhere.iso")}, "--file: nowhere.iso: No such file"),
    ],
)
def test_choice__mistakes(choice: dict[str, Any], message: str) -> None:
    with pytest.raises(GridError) as caught:
        overridden(FILE_GRID, **choice)
    assert str(caught.value).startswith(message)
