"""Devices whose memory this process cannot read: copies between it and the host's, which run beside the program.

Copies in one direction follow each other, in a stream of their own; the two streams and the program's do not wait for
each other but by events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Protocol

import torch

from devmem import Region
from devmem.cuda import CudaMapping


class Closable(Protocol):
    """What is to be given back, or ends with its group."""

    def close(self) -> None:
        """Give it back, or end it."""


DeviceEvent = Any
"""torch's: a point in a stream. Its `synchronize` raises RuntimeError when what is before it has failed."""


class CudaDevice:
    """A GPU of NVIDIA's."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._out, self._in = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def pin(self, region: Region) -> CudaMapping:
        """Let the device copy to and from a region's pages, until what is returned is closed."""
        return CudaMapping(region, device=self._device.index)

    def mark(self) -> DeviceEvent:
        """Return the point that the calling thread's work on the device has come to."""
        return self._event(torch.cuda.current_stream(self._device))

    def _event(self, stream: Any) -> DeviceEvent:
        event = torch.cuda.Event(blocking=True)  # who waits sleeps
        event.record(stream)
        return event

    def copy_out(self, source: Any, target: Any, *, after: DeviceEvent) -> DeviceEvent:
        """Begin to copy a tensor of bytes to the host's memory, once `after` is done; return when that is done."""
        return self._copy(source, target, stream=self._out, after=after)

    def copy_in(self, source: Any, target: Any, *, after: DeviceEvent) -> DeviceEvent:
        """Begin to copy bytes of the host's memory to a tensor, once `after` is done; return when that is done."""
        return self._copy(source, target, stream=self._in, after=after)

    def _copy(self, source: Any, target: Any, *, stream: Any, after: DeviceEvent) -> DeviceEvent:
        with torch.cuda.stream(stream):
            stream.wait_event(after)
            target.copy_(source, non_blocking=True)
        return self._event(stream)

    def synchronize(self) -> None:
        """Return when all copies are done."""
        for stream in (self._out, self._in):
            stream.synchronize()


KINDS: Final[dict[str, Callable[[Any], CudaDevice]]] = {"cuda": CudaDevice}
"""How a device is made, by its type."""


@cache
def device(of: Any) -> CudaDevice:
    """Return what copies for a `torch.device`."""
    return KINDS[of.type](of)


def common_device(tensors: Sequence[Any]) -> CudaDevice | None:
    """Return the device that all these tensors lie on, each without gaps; None: there is none, or it is the CPU."""
    devices = {tensor.device for tensor in tensors}
    if len(devices) != 1 or not all(tensor.is_contiguous() for tensor in tensors):
        return None
    (only,) = devices
    return device(only) if only.type in KINDS else None
