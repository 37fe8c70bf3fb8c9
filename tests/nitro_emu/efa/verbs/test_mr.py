"""Registering memory: regions, parts of them, and addresses."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

import pytest

from devmem.region import Region
from nitro_emu.efa.verbs import Access, MemoryRegion
from nitro_emu.errors import VerbsError
from tests.nitro_emu.efa.verbs.rig import Rig

PAGE = mmap.PAGESIZE


def inode(region: Region) -> int:
    return os.fstat(region.fd).st_ino


def test_a_region(rig: Rig) -> None:
    with Region(3 * PAGE) as region:
        mr = MemoryRegion(rig.pd, region, access=Access.LOCAL_WRITE | Access.REMOTE_READ)
        command, memory = rig.card.registered[-1]
        assert memory == inode(region)
        assert (command.iova, command.mr_length, command.memory_offset) == (region.address, 3 * PAGE, 0)
        assert (command.permissions, command.page_num, command.flags, command.pd) == (5, 3, 12, rig.pd.number)
        assert (mr.address, mr.length, mr.region) == (region.address, 3 * PAGE, region)
        mr.close()
        assert mr.region is None


@pytest.mark.parametrize(
    ("offset", "length", "first", "pages"),
    [
        (PAGE, PAGE, PAGE, 1),
        (PAGE + 8, PAGE, PAGE, 2),
        (5, 1, 0, 1),
        (2 * PAGE - 1, 2, PAGE, 2),
    ],
)
def test_parts_begin_anywhere(rig: Rig, offset: int, length: int, first: int, pages: int) -> None:
    """The card gets the page's offset in the memfd; where in the page it begins, it sees by the address."""
    with Region(3 * PAGE) as region:
        for mr in (
            MemoryRegion(rig.pd, region, offset=offset, length=length),
            MemoryRegion.at(rig.pd, address=region.address + offset, length=length),
        ):
            command, memory = rig.card.registered[-1]
            assert memory == inode(region)
            assert (command.iova, command.mr_length) == (region.address + offset, length)
            assert (command.memory_offset, command.page_num) == (first, pages)
            mr.close()


def test_an_address_in_a_mapping_that_does_not_begin_at_the_files_beginning(rig: Rig) -> None:
    with Region(4 * PAGE) as whole, Region.from_fd(whole.fd, offset=2 * PAGE) as part:
        MemoryRegion.at(rig.pd, address=part.address + PAGE, length=PAGE)
        command, memory = rig.card.registered[-1]
        assert (memory, command.memory_offset) == (inode(whole), 3 * PAGE)


@pytest.mark.parametrize("length", [0, -1, 3 * PAGE + 1])
def test_outside_of_the_region(rig: Rig, length: int) -> None:
    with Region(3 * PAGE) as region:
        with pytest.raises(VerbsError) as raised:
            MemoryRegion(rig.pd, region, length=length)
        assert raised.value.errno == errno.EINVAL
        with pytest.raises(VerbsError):
            MemoryRegion(rig.pd, region, offset=-1, length=1)


def test_memory_that_no_other_process_can_map(rig: Rig) -> None:
    private = ctypes.create_string_buffer(PAGE)
    anonymous = mmap.mmap(-1, PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for address in (ctypes.addressof(private), ctypes.addressof(ctypes.c_char.from_buffer(anonymous)), 0x10):
        with pytest.raises(VerbsError, match=r"devmem\.Region") as raised:
            MemoryRegion.at(rig.pd, address=address, length=16)
        assert raised.value.errno == errno.EFAULT


def test_more_than_one_mapping(rig: Rig) -> None:
    with Region(PAGE) as region:
        with pytest.raises(VerbsError) as raised:
            MemoryRegion.at(rig.pd, address=region.address + 1, length=64 * PAGE)
        assert raised.value.errno == errno.EFAULT


def test_a_closed_region(rig: Rig) -> None:
    region = Region(PAGE)
    region.close()
    with pytest.raises(VerbsError) as raised:
        MemoryRegion(rig.pd, region, length=1)
    assert raised.value.errno == errno.EINVAL


@pytest.mark.parametrize("length", [0, -5])
def test_new_memory_needs_a_length(rig: Rig, length: int) -> None:
    for register in (MemoryRegion.allocate, lambda pd, length: MemoryRegion.at(pd, address=1, length=length)):
        with pytest.raises(VerbsError) as raised:
            register(rig.pd, length=length)
        assert raised.value.errno == errno.EINVAL


def test_more_new_memory_than_there_is(rig: Rig) -> None:
    with pytest.raises(VerbsError) as raised:
        MemoryRegion.allocate(rig.pd, length=1 << 60)
    assert raised.value.errno == errno.ENOMEM


def test_rights_that_the_device_does_not_have(rig: Rig) -> None:
    with pytest.raises(VerbsError) as raised:
        MemoryRegion.allocate(rig.pd, length=1, access=Access(8))
    assert raised.value.errno == errno.EOPNOTSUPP
