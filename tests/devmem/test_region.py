from __future__ import annotations

import ctypes
import errno
import gc
import mmap
import os
import re
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from devmem.errors import RegionError
from devmem.region import Region, huge_page_bytes, memory_bytes
from tests.failing import refusing

PAGE = mmap.PAGESIZE
ROOT = Path(__file__).parents[2]


def descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


@pytest.fixture(autouse=True)
def no_descriptor_left() -> Iterator[None]:
    """Of no region, made or refused, a descriptor stays."""
    before = descriptors()
    yield
    gc.collect()
    assert descriptors() == before


@pytest.mark.parametrize(("requested", "actual"), [(1, PAGE), (PAGE, PAGE), (PAGE + 1, 2 * PAGE), (1 << 20, 1 << 20)])
def test_region__whole_zeroed_pages(requested: int, actual: int) -> None:
    with Region(requested) as region:
        assert region.size_bytes == actual == len(region.array)
        assert region.address % PAGE == 0
        assert not region.array.any()


def test_region__another_mapping_sees_the_same_bytes() -> None:
    """As another process would map the descriptor."""
    with Region(2 * PAGE) as region, mmap.mmap(region.fd, region.size_bytes) as other:
        region.array[PAGE + 3] = 77
        assert other[PAGE + 3] == 77
        other[5] = 11
        assert region.array[5] == 11


@pytest.mark.parametrize("size", [0, -1, 1 << 62, 1 << 70])
def test_region__invalid_sizes(size: int) -> None:
    with pytest.raises(RegionError, match="size: "):
        Region(size)


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
    assert view[0] == region.array[0] == 5, "it is unchanged"
    view.release()
    region.close()


def test_exit__closes_after_an_error_too() -> None:
    with pytest.raises(KeyError), Region(PAGE) as region:
        raise KeyError
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(region.fd)


def test_region__has_a_name_in_proc() -> None:
    with Region(PAGE, name="my-region") as region:
        assert "my-region" in str(Path(f"/proc/self/fd/{region.fd}").readlink())


# -- exports --------------------------------------------------------------------------------------------------------


EXPORTS: dict[str, Callable[[Region], Any]] = {
    "memoryview": memoryview,
    "a slice of it": lambda region: memoryview(region)[5:6],
    "np.asarray": np.asarray,
    "a view of that": lambda region: np.asarray(region)[10:20][::2],
    "a part of region.array": lambda region: region.array[10:20],
    "np.from_dlpack": np.from_dlpack,
    "a DLPack capsule": lambda region: region.__dlpack__(),
    "tensor": lambda region: region.tensor((2, 3), dtype=np.float32, offset=8),
    "ctypes": lambda region: (ctypes.c_ubyte * 7).from_buffer(region, 3),
}


@pytest.mark.parametrize("kind", EXPORTS)
def test_export__keeps_the_region_open(kind: str) -> None:
    region = Region(PAGE)
    export = EXPORTS[kind](region)
    with pytest.raises(RegionError, match="live views"):
        region.close()
    assert region.array.size == PAGE, "it is unchanged"
    del export
    region.close()


def test_export__is_no_copy() -> None:
    with Region(PAGE) as region:
        region.array[:] = 7
        arrays = [np.asarray(region), np.from_dlpack(region), np.frombuffer(region, np.uint8), region.array]
        assert {array.ctypes.data for array in arrays} == {region.address}
        assert region.__array_interface__["data"] == (region.address, False)
        assert region.__dlpack_device__() == (1, 0)
        arrays[0][3] = 9
        assert [int(array[3]) for array in arrays] == [9] * 4
        del arrays


def test_tensor__is_in_place() -> None:
    with Region(PAGE) as region:
        tensor = region.tensor((3, 5), dtype="<f4", offset=64)
        tensor[:] = 2.5
        assert tensor.sum(dtype=float) == 37.5
        assert region.array[64 : 64 + 60].tobytes() == tensor.tobytes()
        assert not region.array[:64].any()
        assert not region.array[124:].any()
        del tensor


@pytest.mark.parametrize(
    ("shape", "offset", "reason"),
    [((1,), 2, "not aligned for float32"), (PAGE // 4 + 1, 0, "not within"), ((1,), PAGE, "not within")],
)
def test_tensor__invalid_bad_flow(shape: int | tuple[int, ...], offset: int, reason: str) -> None:
    with Region(PAGE) as region, pytest.raises(RegionError, match=reason):
        region.tensor(shape, dtype=np.float32, offset=offset)


def test_region__without_references_is_freed_without_a_close() -> None:
    region = Region(PAGE)
    reference = weakref.ref(region)
    del region
    gc.collect()
    assert reference() is None


def test_view__of_a_closed_region_bad_flow() -> None:
    region = Region(PAGE)
    region.close()
    with pytest.raises(RegionError, match="the region is closed"):
        region.view(0, length=0)


# -- other processes ------------------------------------------------------------------------------------------------

OTHER = """
import socket, sys
from devmem.region import Region
with socket.socket(fileno=int(sys.argv[1])) as sock, Region.receive(sock) as region:
    assert region.array[7] == 77, region.array[7]
    region.array[8] = 88
    sock.sendall(b"x")
    assert sock.recv(1) == b"y" and region.array[9] == 99
"""


def test_share__two_processes_see_each_others_bytes() -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, Region(3 * PAGE) as region:
        with there:
            command = [sys.executable, "-c", OTHER, str(there.fileno())]
            child = subprocess.Popen(command, pass_fds=[there.fileno()], cwd=ROOT)
        region.array[7] = 77
        region.share(here)
        assert here.recv(1) == b"x"
        assert region.array[8] == 88
        region.array[9] = 99
        here.sendall(b"y")
        assert child.wait() == 0


def test_share__read_only() -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there, Region(PAGE) as region:
        region.share(here, writable=False)
        with pytest.raises(RegionError, match="map it with writable=False"):
            Region.receive(there)
        region.share(here, writable=False)
        with Region.receive(there, writable=False) as other:
            region.array[0] = 5
            assert other.array[0] == 5
            with pytest.raises(ValueError, match="read-only"):
                other.array[0] = 6


def test_receive__without_a_descriptor_bad_flow() -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        here.sendall(b"R")
        with pytest.raises(RegionError, match="sent no descriptor"):
            Region.receive(there)


def test_from_fd__is_another_mapping_of_the_same_memory() -> None:
    with Region(4 * PAGE) as region, Region.from_fd(region.fd, offset=PAGE, size_bytes=PAGE + 5) as other:
        assert other.size_bytes == len(other.array) == PAGE + 5
        assert other.fd != region.fd
        assert other.address != region.address
        region.array[PAGE + 4] = 4
        assert other.array[4] == 4


def test_region__cannot_be_made_smaller_under_its_users() -> None:
    """Access to removed pages would kill them (SIGBUS)."""
    with Region(2 * PAGE) as region, pytest.raises(PermissionError):
        os.ftruncate(region.fd, PAGE)


@pytest.mark.parametrize(
    ("offset", "size", "reason"),
    [
        (5, None, "offset: 5 is no multiple of"),
        (-PAGE, None, "no multiple"),
        (PAGE, None, "size: 0 bytes from"),
        (0, PAGE + 1, f"size: {PAGE + 1} bytes from 0 on are not in a file of {PAGE}"),
        (0, 0, "size: 0"),
        (0, -1, "size: -1"),
    ],
)
def test_from_fd__range_outside_the_file_bad_flow(offset: int, size: int | None, reason: str) -> None:
    with Region(PAGE) as region, pytest.raises(RegionError, match=reason):
        Region.from_fd(region.fd, offset=offset, size_bytes=size)


def test_from_fd__closed_descriptor_bad_flow() -> None:
    fd = os.memfd_create("gone")
    os.close(fd)
    for number in (fd, -1, 1 << 40):
        with pytest.raises(RegionError, match=f"fd: {number} cannot be mapped"):
            Region.from_fd(number)


def test_from_fd__no_file_bad_flow() -> None:
    with socket.socket() as sock, pytest.raises(RegionError, match="neither a memfd nor a file"):
        Region.from_fd(sock.fileno())


# -- files ----------------------------------------------------------------------------------------------------------


def test_open__is_the_file_itself(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    with Region.open(file, size_bytes=PAGE + 100, writable=True) as region:
        region.array[PAGE + 99] = 9
    assert file.stat().st_size == PAGE + 100
    with Region.open(file) as region:
        assert region.array[PAGE + 99] == 9
        assert not region.writable
        with pytest.raises(TypeError, match="read-only"), region.view(0, length=1) as view:
            view[0] = 1
        with pytest.raises(ValueError, match="read-only"):
            region.tensor(1, dtype=np.uint8)[0] = 1
        assert np.array_equal(np.from_dlpack(region), region.array)


@pytest.mark.parametrize("name", ["missing", "nul\0", ".", "empty"])
def test_open__file_that_cannot_be_mapped_bad_flow(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(RegionError, match=re.escape(str(tmp_path))):
        Region.open(tmp_path / name)


def test_open__longer_than_the_disk_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(RegionError, match=f"cannot be made {1 << 55} bytes long"):
        Region.open(tmp_path / "large", size_bytes=1 << 55, writable=True)


# -- sizes ----------------------------------------------------------------------------------------------------------


def test_region__larger_than_memory_bad_flow() -> None:
    with pytest.raises(RegionError, match=f"more than this machine's memory \\({memory_bytes()}\\)"):
        Region(memory_bytes() + 1)


@contextmanager
def huge_pages(count: int) -> Iterator[None]:
    """Reserve `count` more huge pages; release them afterwards."""
    setting = Path("/proc/sys/vm/nr_hugepages")
    reserved = setting.read_text(encoding="ascii")
    setting.write_text(str(int(reserved) + count), encoding="ascii")
    try:
        yield
    finally:
        setting.write_text(reserved, encoding="ascii")


@pytest.mark.root
def test_region__of_huge_pages() -> None:
    size_bytes = huge_page_bytes()
    with huge_pages(2), Region(size_bytes + 1, huge_pages=True) as region:
        assert region.size_bytes == 2 * size_bytes
        assert region.address % size_bytes == 0
        region.array[-1] = 1
        smaps = Path("/proc/self/smaps").read_text(encoding="ascii")
        mapping = smaps[smaps.index(f"{region.address:x}-") :]
        assert mapping.split("KernelPageSize:")[1].split()[0] == str(size_bytes >> 10)


def test_region__of_huge_pages_that_are_not_reserved_bad_flow() -> None:
    with pytest.raises(RegionError, match=r"sysctl vm\.nr_hugepages"):
        Region(memory_bytes() // huge_page_bytes() * huge_page_bytes(), huge_pages=True)


def test_populate__allocates_pages() -> None:
    with Region(16 * PAGE) as region:
        assert os.fstat(region.fd).st_blocks == 0
        region.populate(PAGE + 1, length=2 * PAGE)  # a part of three pages
        assert os.fstat(region.fd).st_blocks * 512 == 3 * PAGE
        assert not region.array.any()


def test_populate__read_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * PAGE)
    with Region.open(tmp_path / "file") as region:
        region.populate(0, length=PAGE)


def test_populate__bad_flow(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(2 * PAGE))
    with Region.open(tmp_path / "file") as region:
        with pytest.raises(RegionError, match="bytes 1 to 8193 are not within a region of 8192"):
            region.populate(1, length=2 * PAGE)
        os.truncate(tmp_path / "file", PAGE)
        with pytest.raises(RegionError, match="no memory for bytes 0 to 8192"):
            region.populate(0, length=2 * PAGE)


def test_populate__without_kernel_support_is_lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Region, "madvise", refusing(errno.EINVAL))
    with Region(PAGE) as region:
        region.populate(0, length=PAGE)
        region.array[:] = 1
