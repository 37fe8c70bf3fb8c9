"""The bytes of tensors: where they lie, and what is done with bytes that arrive.

1. A tensor is used by its address. `tensor.numpy()` would make its storage unresizable, which FSDP needs, and knows no
   bfloat16; a tensor made of the address by `torch.frombuffer` has no autograd history and no inference mode either.
2. What is sent lies in the tensor until it is acknowledged. What arrives is copied from the receive region to where it
   belongs, or reduced from there, which is no copy.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch.distributed import ReduceOp

from srd import Message
from srd.torch.group_error import GroupError


class Early:
    """The content of a message that came before anybody waited for it."""

    def __init__(self, content: bytes) -> None:
        self._content = bytearray(content)
        self.length = len(content)

    def views(self) -> Iterator[memoryview]:
        """Yield the content."""
        yield memoryview(self._content)

    def gather(self, into: Any) -> memoryview:
        """Copy the content to a buffer."""
        target = memoryview(into)
        target[: self.length] = self._content
        return target[: self.length]


Arrived = Message | Early
Land = Callable[[int, Arrived], None]
"""Takes a piece of a transfer: its offset in bytes, and its content."""


class Block:
    """`length` bytes at `address`, which `owner` keeps."""

    __slots__ = ("_view", "address", "length", "owner")

    def __init__(self, address: int, length: int, owner: object) -> None:
        self.address, self.length, self.owner = address, length, owner
        self._view: memoryview | None = None

    @property
    def view(self) -> memoryview:
        """All of it, writable."""
        if self._view is None:
            self._view = memoryview((ctypes.c_char * self.length).from_address(self.address)).cast("B")
        return self._view

    def part(self, start: int, end: int) -> Block:
        """Return the bytes from `start` to `end`."""
        return Block(self.address + start, end - start, self.owner)

    def split(self, count: int, *, item_bytes: int) -> list[Block]:
        """Return equal parts of whole elements, up to rounding; some may be empty."""
        items = self.length // item_bytes
        edges = [items * index // count * item_bytes for index in range(count + 1)]
        return [self.part(start, end) for start, end in itertools.pairwise(edges)]

    def land(self, offset: int, arrived: Arrived) -> None:
        """Copy a piece to its place."""
        arrived.gather(self.view[offset : offset + arrived.length])

    def elements(self, dtype: Any) -> Any:
        """Return it as a flat tensor."""
        if not self.length:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(self.view, dtype=dtype)


def block_of(tensor: Any) -> Block:
    """Return a contiguous tensor's bytes."""
    return Block(tensor.data_ptr(), tensor.numel() * tensor.element_size(), tensor)


def scratch(length: int) -> Block:
    """Return new memory."""
    return block_of(torch.empty(length, dtype=torch.uint8))


Operation = ReduceOp.RedOpType
_REDUCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    Operation.SUM: torch.add,
    Operation.AVG: torch.add,  # and a division at the end
    Operation.PRODUCT: torch.mul,
    Operation.MIN: torch.minimum,
    Operation.MAX: torch.maximum,
    Operation.BAND: torch.bitwise_and,
    Operation.BOR: torch.bitwise_or,
    Operation.BXOR: torch.bitwise_xor,
}


class Reduction:
    """How elements of one type are combined."""

    def __init__(self, op: Any, dtype: Any) -> None:
        """`op`: torch's ReduceOp. Raises GroupError for one that there is not."""
        kind = getattr(op, "op", op)
        if kind not in _REDUCTIONS:
            raise GroupError(f"op: {kind} is not supported by the backend srd")
        if dtype.is_complex and kind not in {Operation.SUM, Operation.AVG, Operation.PRODUCT}:
            raise GroupError(f"op: {kind} is not defined for {dtype}")
        self.dtype = dtype
        self.item_bytes: int = dtype.itemsize
        self._function = _REDUCTIONS[kind]
        self._averages = kind == Operation.AVG
        if self._averages and not (dtype.is_floating_point or dtype.is_complex):
            raise GroupError(f"op: AVG is not defined for {dtype}; sum, and divide")

    def into(self, source: Block, result: Block) -> Land:
        """Return what sets `result` to `source` combined with what arrives; both may be the same memory."""
        own, combined = source.elements(self.dtype), result.elements(self.dtype)

        def land(offset: int, arrived: Arrived) -> None:
            views = list(arrived.views())
            if len(views) == 1:
                incoming = views[0]
            else:  # an element may lie across two fragments
                incoming = memoryview(bytearray(arrived.length))
                arrived.gather(incoming)
            start = offset // self.item_bytes
            end = start + arrived.length // self.item_bytes
            piece = torch.frombuffer(incoming, dtype=self.dtype)
            self._function(own[start:end], piece, out=combined[start:end])

        return land

    def finish(self, result: Block, *, ranks: int) -> None:
        """Divide the sum, if the mean is wanted."""
        if self._averages:
            elements = result.elements(self.dtype)
            torch.div(elements, ranks, out=elements)
