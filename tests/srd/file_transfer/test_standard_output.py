"""srd.file_transfer.standard_output: one file, a reader that is slow or gone, a descriptor that stays as it was."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from srd.file_transfer.errors import TransferError
from srd.file_transfer.protocol import Offer, Offers
from srd.file_transfer.standard_output import StandardOutput

PIPE = Offer("-", 0, 1024, "0" * 32, is_pipe=True)
FILE = Offer("a", 10, 1024, "1" * 32)
DIRECTORY = Offer("d", 0, 1024, "", is_directory=True)


@contextmanager
def piped() -> Iterator[tuple[StandardOutput, int]]:
    """Give the place, and the descriptor of its reader, which the caller closes."""
    reading, writing = os.pipe()
    place = StandardOutput(writing)
    try:
        yield place, reading
    finally:
        place.close()
        assert os.get_blocking(writing)
        os.close(writing)


def test_write__a_full_disk_bad_flow() -> None:
    with Path("/dev/full").open("wb") as file:
        place = StandardOutput(file.fileno())
        with pytest.raises(TransferError, match="cannot be written: No space left on device"):
            place.write(b"a")
        place.close()


def test_store__is_for_one_file_bad_flow() -> None:
    """Also if a sender offers more than it said."""
    with piped() as (place, reading):
        place.check(Offers((PIPE,), 0, 0))
        place.store(PIPE, stop=threading.Event())
        with pytest.raises(TransferError, match="a: the receiver has written another file"):
            place.store(FILE, stop=threading.Event())
        with pytest.raises(TransferError, match="takes no directory"):
            place.make_directory(DIRECTORY)
        os.close(reading)
