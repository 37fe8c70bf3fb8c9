"""What the card and a program share: neither can make the other wait, and only the card writes what it writes."""

from __future__ import annotations

import ctypes
import mmap
import os
import select

import pytest

from nitro_emu.efa.card.shared import EventSender, card_written_region, drain_eventfd, new_eventfd


def test_a_program_cannot_make_the_card_wait_in_an_eventfd() -> None:
    fd = new_eventfd()
    os.set_blocking(fd, True)  # as its program can, with a descriptor of the same file
    drain_eventfd(fd)  # empty: a read would wait for ever
    os.eventfd_write(fd, (1 << 64) - 2)
    drain_eventfd(fd)
    assert not select.select([fd], [], [], 0)[0]
    os.close(fd)


def test_a_program_that_reads_no_events_does_not_stop_the_card() -> None:
    sender = EventSender()
    os.set_blocking(sender.program_fd, True)
    for _ in range(10_000):
        sender.signal()
    assert int.from_bytes(os.read(sender.program_fd, 8), "little") == 1
    os.close(sender.program_fd)
    sender.signal()
    sender.close()


def test_memory_that_the_card_writes_cannot_be_written_by_its_program() -> None:
    region = card_written_region(8192, name="test")
    for flags in (os.O_RDONLY, os.O_RDWR):
        fd = os.open(f"/proc/self/fd/{region.fd}", flags)
        with pytest.raises(PermissionError):
            mmap.mmap(fd, 8192, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        with pytest.raises(OSError, match=r"not permitted|Bad file"):
            os.write(fd, b"x")
        with pytest.raises(OSError, match=r"not permitted|Invalid"):
            os.ftruncate(fd, 0)
        hole = ctypes.c_long(0), ctypes.c_long(8192)
        assert ctypes.CDLL(None).fallocate(fd, 3, *hole) == -1, "a hole would make zeros of what the card has written"
        os.close(fd)
    with memoryview(region) as view:
        view[0] = 7
    region.close()
