"""Registered memory: what a program may hand over, and which addresses are within it."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devmem.registry import Access
from nitro_emu.efa.abi.enums import AdminStatus
from nitro_emu.efa.card.memory_region import CardMemoryRegion, map_untrusted, new_rkey
from nitro_emu.efa.card.objects import CardProtectionDomain
from nitro_emu.errors import AdminError

PAGE = 4096
BOTH = Access.LOCAL_WRITE | Access.REMOTE_WRITE


@contextmanager
def memfd(size: int = 4 * PAGE, *, seals: int = fcntl.F_SEAL_SHRINK) -> Iterator[int]:
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        if seals:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        yield fd
    finally:
        os.close(fd)


unused: list[CardMemoryRegion] = []


@contextmanager
def registered(*, iova: int, length: int) -> Iterator[tuple[CardMemoryRegion, CardProtectionDomain]]:
    domain = CardProtectionDomain(1)
    with memfd() as fd:
        region = map_untrusted(fd, offset=0, length=iova % PAGE + length, permissions=BOTH)
    memory = CardMemoryRegion(
        region, pd=domain, iova=iova, length=length, permissions=BOTH, lkey=1, rkey=2, on_unused=unused.append
    )
    try:
        yield memory, domain
    finally:
        if memory.is_registered:
            memory.deregister()
        if memory.uses:
            memory.release(memory.uses)


@given(
    st.sampled_from((0, PAGE, PAGE + 100, (1 << 64) - 8192, 1 << 63)),
    st.integers(1, 8000),
    st.integers(-9000, 9000),
    st.integers(-1, 9000),
)
def test_only_addresses_within_the_range_have_a_place(iova: int, size: int, offset: int, length: int) -> None:
    with registered(iova=iova, length=size) as (memory, _):
        place = memory.place(iova + offset, length=length)
        within = offset >= 0 and length >= 0 and offset + length <= size
        assert (place is not None) is within
        if place is not None:
            assert place == memory.base + offset


def test_the_place_is_the_programs_memory() -> None:
    with memfd() as fd:
        os.pwrite(fd, bytes(range(256)), PAGE + 100)
        region = map_untrusted(fd, offset=PAGE, length=100 + 256, permissions=0)
        memory = CardMemoryRegion(
            region, pd=CardProtectionDomain(1), iova=0x5000_0064, length=256, permissions=0, lkey=1, rkey=2,
            on_unused=unused.append,
        )  # fmt: skip
        assert memory.view.tobytes() == bytes(range(256))
        mapped = f"\n{region.address:x}-{region.address + PAGE:x} r--s "
        assert mapped in Path("/proc/self/maps").read_text(), "nobody may write it, so it is not mapped for writing"
        memory.deregister()


def test_it_is_closed_at_once_and_unmapped_after_the_last_use() -> None:
    with registered(iova=PAGE, length=100) as (memory, domain):
        assert domain.users == 1
        memory.uses += 2
        view = memory.view
        memory.deregister()
        assert domain.users == 0
        assert memory.place(PAGE, length=1) is None
        memory.release()
        assert len(view) == 100, "a request still uses it"
        assert memory not in unused, "it counts until then"
        memory.release()
        assert unused[-1] is memory
        with pytest.raises(ValueError, match="released"):
            len(view)


def refused(fd: int, *, offset: int = 0, length: int = PAGE, permissions: int = BOTH) -> AdminStatus:
    with pytest.raises(AdminError) as caught:
        map_untrusted(fd, offset=offset, length=length, permissions=permissions)
    return AdminStatus(caught.value.status)


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 0), (0, -1), (1, PAGE), (0, 4 * PAGE + 1), (4 * PAGE, 1), (1 << 62, PAGE), ((1 << 64) - PAGE, PAGE)],
)
def test_ranges_outside_of_the_memfd_are_refused(offset: int, length: int) -> None:
    with memfd() as fd:
        assert refused(fd, offset=offset, length=length) is AdminStatus.ILLEGAL_PARAMETER


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_GROW, fcntl.F_SEAL_SEAL])
def test_memory_that_can_shrink_is_refused(seals: int) -> None:
    with memfd(seals=seals) as fd:
        assert refused(fd) is AdminStatus.ILLEGAL_PARAMETER


def test_memory_that_cannot_be_written_is_refused_for_writing_only() -> None:
    with memfd(seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE) as fd:
        assert refused(fd) is AdminStatus.RESOURCE_ALLOCATION_FAILURE
        map_untrusted(fd, offset=0, length=PAGE, permissions=Access.REMOTE_READ).close()


def test_other_descriptors_are_refused() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        assert refused(sock.fileno()) is AdminStatus.ILLEGAL_PARAMETER
    for path in ("/dev/zero", "/proc/self/exe", "/"):
        fd = os.open(path, os.O_RDONLY)
        assert refused(fd, permissions=0) is AdminStatus.ILLEGAL_PARAMETER
        os.close(fd)


def test_keys_are_not_zero_and_not_taken() -> None:
    with registered(iova=PAGE, length=1) as (memory, _):
        keys = {new_rkey({}) for _ in range(100)}
        assert 0 not in keys
        assert len(keys) > 90, "drawn at random"
        assert new_rkey(dict.fromkeys(keys, memory)) not in keys
