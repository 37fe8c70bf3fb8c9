"""Copies payload from the receive region to the buffers of receive requests: the one copy of a card's receiver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Place = Callable[[int, int, int], int | None]
"""Returns where a buffer (address, length, lkey) lies in this process; None: it is not registered for that."""
FEW: Final = 4
"""Up to so many payloads are copied one by one, more by NumPy if their buffers are equally far apart."""
_ADDRESS, _LENGTH, _LKEY = range(3)


class Piece(NamedTuple):
    """A contiguous piece of a message in the receive region."""

    address: int
    length: int


def land_message(pieces: Iterable[Piece], buffers: Words, *, length: int, place: Place) -> bool:
    """Copy a message of `length` bytes to its buffers [buffer, (address, length, lkey)].

    Return whether it landed: its buffers are valid, and long enough.
    """
    targets = []
    left = length
    for address, size, lkey in buffers.tolist():
        used = min(size, left)
        if used:
            target = place(address, used, lkey)
            if target is None:
                return False
            targets.append(Piece(target, used))
            left -= used
    _copy(list(pieces), targets)
    return left == 0


def _copy(sources: list[Piece], targets: list[Piece]) -> None:
    """Copy what the sources hold, in order, to the targets."""
    source_at = 0  # of the first source
    for target in targets:
        done = 0
        while done < target.length:
            source = sources[0]
            count = min(target.length - done, source.length - source_at)
            ctypes.memmove(target.address + done, source.address + source_at, count)
            done += count
            source_at += count
            if source_at == source.length:
                sources.pop(0)
                source_at = 0


def land_batch(source: int, buffers: Words, *, length: int, place: Place) -> npt.NDArray[np.bool_]:
    """Copy messages of `length` bytes, back to back at `source`, each to its buffers [buffer, ..., message].

    Return which of them landed; the others' buffers are not valid.
    """
    count = buffers.shape[2]
    if count > FEW and length and _land_equally_spaced(source, buffers, length=length, place=place):
        return np.ones(count, np.bool_)
    landed = [
        land_message([Piece(source + index * length, length)], buffers[:, :, index], length=length, place=place)
        for index in range(count)
    ]
    return np.array(landed, np.bool_)


def _land_equally_spaced(source: int, buffers: Words, *, length: int, place: Place) -> bool:
    """Copy all at once if their first buffers are long enough, of one memory region, and equally far apart."""
    first = buffers[0]
    addresses, lkey = first[_ADDRESS], int(first[_LKEY, 0])
    steps = np.diff(addresses.astype(np.int64))
    step = int(steps[0])
    if step < length or not (steps == step).all() or not (first[_LKEY] == lkey).all():
        return False
    if int(first[_LENGTH].min()) < length:
        return False
    count, low = len(addresses), int(addresses[0])
    target = place(low, (count - 1) * step + length, lkey)
    if target is None:
        return False
    payload = _rows(source, count=count, length=length, step=length)
    _rows(target, count=count, length=length, step=step)[:] = payload
    return True


def _rows(address: int, *, count: int, length: int, step: int) -> npt.NDArray[np.uint8]:
    """Return rows of `length` bytes, one every `step` bytes from `address` of this process on."""
    memory = np.frombuffer(memoryview((ctypes.c_uint8 * ((count - 1) * step + length)).from_address(address)), np.uint8)
    return np.lib.stride_tricks.as_strided(memory, (count, length), (step, 1))
