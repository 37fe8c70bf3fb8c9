"""Copies payload from the receive region to the buffers of receive requests: the one copy of a card's receiver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from nitro_emu.efa.card.recv_queue import PostedReceive

Place = Callable[[int, int, int], int | None]
"""Returns where a buffer (address, length, lkey) lies in this process; None: it is not registered for that."""
FEW: Final = 4
"""Up to so many payloads are copied one by one, more by NumPy if their buffers are equally far apart."""


class Piece(NamedTuple):
    """A contiguous piece of a message in the receive region."""

    address: int
    length: int


def land_message(pieces: Sequence[Piece], request: PostedReceive, *, length: int, place: Place) -> bool:
    """Copy a message of `length` bytes to the buffers of its request; return whether these are valid, and enough."""
    targets = []
    left = length
    for address, size, lkey in request.buffers:
        used = min(size, left)
        if used:
            target = place(address, used, lkey)
            if target is None:
                return False
            targets.append(Piece(target, used))
            left -= used
    if left:
        return False
    if len(pieces) == len(targets) == 1:
        ctypes.memmove(targets[0].address, pieces[0].address, length)
    else:
        _copy(list(pieces), targets)
    return True


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


def land_batch(source: int, requests: list[PostedReceive], *, length: int, place: Place) -> list[bool]:
    """Copy messages of `length` bytes, back to back at `source`, each to its request; return which of them landed."""
    if len(requests) > FEW and length and _land_equally_spaced(source, requests, length=length, place=place):
        return [True] * len(requests)
    return [
        land_message([Piece(source + index * length, length)], request, length=length, place=place)
        for index, request in enumerate(requests)
    ]


def _land_equally_spaced(source: int, requests: list[PostedReceive], *, length: int, place: Place) -> bool:
    """Copy all at once if their first buffers are long enough, of one memory region, and equally far apart."""
    firsts = [request.buffers[0] for request in requests]
    low, _, lkey = firsts[0]
    step = firsts[1][0] - low
    if step < length:
        return False
    address = low
    for at, size, key in firsts:
        if at != address or size < length or key != lkey:
            return False
        address += step
    count = len(firsts)
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
