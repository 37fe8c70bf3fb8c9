"""A region that a CUDA device reads and writes in place. Optional: no other module needs this one, or CUDA.

`CudaMapping` registers a region's pages with the driver (cuMemHostRegister), which pins them and maps them into the
device's address space. CuPy, Numba and torch accept it by `__cuda_array_interface__`, version 3:
`cupy.asarray(mapping)`, `torch.as_tensor(mapping, device="cuda")`. It remains host memory: the device accesses it over
PCIe, so data that it reads often should be copied to the device once. The module calls the driver API in the device's
primary context, which libraries use, too.
"""

from __future__ import annotations

import ctypes
from typing import Any, Self

from devmem.errors import CudaError
from devmem.region import Region

PORTABLE, DEVICE_MAP, READ_ONLY = 1, 2, 8  # CU_MEMHOSTREGISTER_* (cuda.h)


def load() -> Any:
    """Return the initialised driver. Raises CudaError if there is no driver or no device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaError(f"no CUDA driver: {error}; install the one of your GPU") from error
    _check(driver, driver.cuInit(0), "cuInit")
    return driver


def _check(driver: Any, code: int, what: str) -> None:
    if code:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(text))
        raise CudaError(f"{what}: {(text.value or b'unknown error').decode()} (CUDA error {code})")


class CudaMapping:
    """All of a region, mapped for device `device` at `pointer`. A context manager; it keeps the region open."""

    def __init__(self, region: Region, *, device: int = 0) -> None:
        self._driver = load()
        self._number = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._number), device)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._number)
        self._view: memoryview | None = None
        self._writable = region.writable
        self._address = ctypes.c_void_p(region.address)
        pointer = ctypes.c_uint64()
        try:
            self._call("cuCtxSetCurrent", context)
            flags = PORTABLE | DEVICE_MAP | (0 if region.writable else READ_ONLY)
            self._call("cuMemHostRegister_v2", self._address, ctypes.c_size_t(region.size_bytes), flags)
            self._view = region.view(0, length=region.size_bytes)
            self._call("cuMemHostGetDevicePointer_v2", ctypes.byref(pointer), self._address, 0)
        except CudaError:
            self.close()
            raise
        self.pointer = pointer.value
        self.size_bytes = region.size_bytes

    def _call(self, name: str, *arguments: object) -> None:
        _check(self._driver, getattr(self._driver, name)(*arguments), name)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The bytes as an array, in the exchange protocol of CUDA libraries."""
        return {
            "shape": (self.size_bytes,),
            "typestr": "|u1",
            "data": (self.pointer, not self._writable),
            "version": 3,
            "strides": None,
            "stream": None,
        }

    def close(self) -> None:
        """Unregister the memory; the device must not use it any more."""
        if self._driver is None:
            return
        driver, self._driver = self._driver, None
        if self._view is not None:
            driver.cuMemHostUnregister(self._address)
            self._view.release()
        driver.cuDevicePrimaryCtxRelease_v2(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
