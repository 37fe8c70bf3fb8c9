"""netns.netem.distributions: the tables are iproute2's own, and files are read as tc reads them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from netns.errors import ShapeError
from netns.netem.distributions import scaled, table

# SHA-256 of the numbers in the files that iproute2's generators write, one space between two.
PUBLISHED = {
    "normal": "c59486ef7d9f4753",
    "pareto": "7b6250dae83ed813",
    "paretonormal": "6b6ec6bcf481be2a",
}


def entries(name: str) -> tuple[int, ...]:
    found = table(name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", PUBLISHED)
def test_table__is_iproute2s_number_for_number(name: str) -> None:
    digest = hashlib.sha256(" ".join(map(str, entries(name))).encode()).hexdigest()
    assert digest.startswith(PUBLISHED[name])


def test_table__uniform_needs_none() -> None:
    assert table("uniform") is None


def test_table__of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "two.dist"
    path.write_text("# comment 1 2 3\n -8192 8192\n 0\n")
    assert table(str(path)) == (-8192, 8192, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("# nothing\n", "0 entries; netem takes 1 to 16384"),
        ("1 " * 16385, "16385 entries; netem takes 1 to 16384"),
        ("1 x", "not a table of integers: invalid literal"),
        ("32768", "32768 does not fit 16 bits, as netem's entries do"),
        ("1" * (1 << 20) + "1", "larger than 1 MiB; this is no table"),
    ],
)
def test_table__bad_file_bad_flow(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.dist"
    path.write_text(content)
    with pytest.raises(ShapeError, match=f"^distribution: {path}: {message}"):
        table(str(path))


def test_table__no_such_file_bad_flow() -> None:
    with pytest.raises(ShapeError, match=r"^distribution: /no/such: No such file .*; name one of uniform, normal"):
        table("/no/such")


def test_scaled__divides_towards_zero_as_c_does() -> None:
    assert scaled(8192, jitter_ns=1_000_000) == 1_000_000
    assert scaled(-8192, jitter_ns=1_000_000) == -1_000_000
    assert scaled(-1, jitter_ns=8191) == -1  # -8191 - 4096 is less than one whole 8192 below
    assert scaled(-1, jitter_ns=4095) == 0
    assert scaled(3, jitter_ns=3 * 8192 + 5) == 9
