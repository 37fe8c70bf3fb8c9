"""A received message: where it lies, and the duty to give the memory back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

from devmem.region import Region
from srd.errors import UsageError
from srd.proto.events import Frag, MessageReceived


@dataclass(frozen=True, slots=True)
class Written:
    """A write with immediate of the peer's has landed in memory registered here; where, is between the two of you."""

    length: int
    immediate: int


class Message:
    """Frags in the receive region, in order.

    Use it as a context manager, or `release` it: until then its memory is yours, and the sender is short of credit.
    """

    def __init__(self, event: MessageReceived, *, region: Region, give_back: Callable[[MessageReceived], None]) -> None:
        self._event = event
        self._region = region
        self._give_back: Callable[[MessageReceived], None] | None = give_back

    @property
    def length(self) -> int:
        """Bytes of the whole message."""
        return self._event.length

    @property
    def immediate(self) -> int | None:
        """The sender's 32-bit immediate; None: it gave none."""
        return self._event.immediate

    @property
    def frags(self) -> tuple[Frag, ...]:
        """The pieces, in order of their offset in the message."""
        return self._event.frags

    def views(self) -> Iterator[memoryview]:
        """Yield the pieces' memory in order, without a copy. Drop the views before `release`."""
        if self._give_back is None:
            raise UsageError("the message was released: its memory may hold another by now")
        for frag in self._event.frags:
            yield self._region.view(frag.region_offset, length=frag.length)

    def gather(self) -> bytes:
        """Return the message as bytes: one copy."""
        return b"".join(self.views())

    def release(self) -> None:
        """Give the memory and the credit back. Once is enough; more does nothing."""
        if self._give_back is not None:
            give_back, self._give_back = self._give_back, None
            give_back(self._event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
