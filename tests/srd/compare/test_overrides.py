"""What the command line chooses of a grid."""

from __future__ import annotations

from pathlib import Path

import pytest

from srd.compare.errors import GridError
from srd.compare.overrides import GridOverrides
from srd.compare.traffic import File
from tests.srd.compare.cases import FILE_GRID, GRID


def test_choice__nothing_is_all() -> None:
    assert GridOverrides().of(GRID) == GRID


def test_choice__in_the_grids_order() -> None:
    chosen = GridOverrides(transports="mptcp, srd", conditions="dead", seeds=3).of(GRID)
    assert (chosen.transports, list(chosen.conditions), chosen.seeds) == (("srd", "mptcp"), ["dead"], (1, 2, 3))
    assert (chosen.workloads, chosen.fabrics) == (GRID.workloads, GRID.fabrics)


def test_choice__of_a_file(tmp_path: Path) -> None:
    own = tmp_path / "own.iso"
    own.write_bytes(b"abc")
    assert GridOverrides(file=own).of(FILE_GRID).workloads == {"file": File(3, str(own))}
    assert GridOverrides(size_bytes=2 << 20).of(FILE_GRID).workloads == {"file": File(2 << 20)}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (GridOverrides(conditions="clean,fog"), "--conditions: 'fog' is none of clean, dead"),
        (GridOverrides(transports="quic"), "--transports: 'quic' is none of srd, cubic, bbr, mptcp"),
        (GridOverrides(size_bytes=1 << 20, file=Path("x")), "--file, --size: give one of them"),
        (GridOverrides(size_bytes=0), "--size: 0 is not between 1 and"),
        (GridOverrides(file=Path("nowhere.iso")), "--file: nowhere.iso: No such file"),
    ],
)
def test_choice__mistakes(choice: GridOverrides, message: str) -> None:
    with pytest.raises(GridError) as caught:
        choice.of(FILE_GRID)
    assert str(caught.value).startswith(message)


def test_choice__a_file_for_nobody_is_a_mistake() -> None:
    with pytest.raises(GridError, match="--file, --size: no workload of a grid sends a file"):
        GridOverrides(size_bytes=1 << 20).of(GRID)
