from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from devmem.errors import RegionError
from devmem.region import Region

PAGE = mmap.PAGESIZE


def descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize(("asked", "given"), [(1, PAGE), (PAGE, PAGE), (PAGE + 1, 2 * PAGE), (1 << 20, 1 << 20)])
def test_region__whole_zeroed_pages(asked: int, given: int) -> None:
    with Region(asked) as region:
        assert region.size_bytes == given == len(region.array)
        assert region.address % PAGE == 0
        assert not region.array.any()


def test_region__another_mapping_sees_the_same_bytes() -> None:
    """What another process would do with the descriptor."""
    with Region(2 * PAGE) as region, mmap.mmap(region.fd, region.size_bytes) as other:
        region.array[PAGE + 3] = 77
        assert other[PAGE + 3] == 77
        other[5] = 11
        assert region.array[5] == 11


@pytest.mark.parametrize("size", [0, -1, 1 << 62, 1 << 70])
def test_region__memory_that_cannot_be_had(size: int) -> None:
    before = descriptors()
    with pytest.raises(RegionError, match="size: "):
        Region(size)
    assert descriptors() == before


def test_view__is_the_memory_itself() -> None:
    with Region(PAGE) as region:
        with region.view(10, length=5) as view:
            view[:] = b"hello"
        assert bytes(region.array[10:15]) == b"hello"
        with region.view(PAGE, length=0) as empty:
            assert len(empty) == 0


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, PAGE + 1), (PAGE, 1), (5, -1), (1 << 70, 1)])
def test_view__out_of_bounds(offset: int, length: int) -> None:
    with Region(PAGE) as region, pytest.raises(RegionError, match=f"{offset} to {offset + length} are not within"):
        region.view(offset, length=length)


def test_close__returns_the_descriptor_and_is_idempotent() -> None:
    before = descriptors()
    region = Region(PAGE)
    assert len(descriptors()) > len(before)
    region.close()
    region.close()
    assert descriptors() == before


def test_close__while_a_view_is_alive() -> None:
    region = Region(PAGE)
    region.array[0] = 5
    view = region.view(0, length=10)
    with pytest.raises(RegionError, match="live views"):
        region.close()
    assert view[0] == region.array[0] == 5, "it is as it was"
    view.release()
    region.close()


def test_close__while_an_array_is_alive() -> None:
    region = Region(PAGE)
    alias: np.ndarray[tuple[int], np.dtype[np.uint8]] | None = region.array[10:20]
    with pytest.raises(RegionError, match="live views"):
        region.close()
    del alias
    region.close()


def test_exit__closes_after_an_error_too() -> None:
    with pytest.raises(KeyError), Region(PAGE) as region:
        raise KeyError
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(region.fd)


def test_region__has_a_name_to_be_found_by() -> None:
    with Region(PAGE, name="my-region") as region:
        assert "my-region" in str(Path(f"/proc/self/fd/{region.fd}").readlink())
