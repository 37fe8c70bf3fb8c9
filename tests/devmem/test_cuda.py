"""Registration with the CUDA driver: against a fake driver that records its calls, and a real one where available."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from devmem import cuda
from devmem.cuda import CudaMapping
from devmem.errors import CudaError, RegionError
from devmem.region import Region
from tests.failing import failing

POINTER = 0x7F00_0000_1000


class Driver:
    """A fake driver that records calls; the call named `failing` returns error 2."""

    def __init__(self, *, failing: str = "") -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.failing = failing

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name, arguments))
            if name == "cuMemHostGetDevicePointer_v2":
                arguments[0]._obj.value = POINTER
            if name == "cuGetErrorString":
                arguments[1]._obj.value = b"out of memory"
            return 2 if name == self.failing else 0

        return call

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def arguments(self, wanted: str) -> list[Any]:
        (found,) = (arguments for name, arguments in self.calls if name == wanted)
        return [getattr(argument, "value", argument) for argument in found]


@pytest.fixture
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """What is loaded; its parameter: the call that fails."""
    made = Driver(failing=getattr(request, "param", ""))
    monkeypatch.setattr(cuda, "load", lambda: made)
    return made


def test_mapping__registers_all_of_the_region_and_keeps_it_open(driver: Driver) -> None:
    with Region(8192) as region:
        with CudaMapping(region) as mapping:
            assert driver.arguments("cuMemHostRegister_v2") == [region.address, 8192, 3]
            assert mapping.__cuda_array_interface__ == {
                "shape": (8192,), "typestr": "|u1", "data": (POINTER, False), "version": 3, "strides": None,
                "stream": None,
            }  # fmt: skip
            with pytest.raises(RegionError, match="live views"):
                region.close()
        assert driver.names()[-2:] == ["cuMemHostUnregister", "cuDevicePrimaryCtxRelease_v2"]
        mapping.close()
        assert driver.names().count("cuMemHostUnregister") == 1


def test_mapping__of_a_read_only_region(driver: Driver) -> None:
    with Region(4096) as region, Region.from_fd(region.fd, writable=False) as other, CudaMapping(other) as mapping:
        assert driver.arguments("cuMemHostRegister_v2")[2] == 1 | 2 | 8
        assert mapping.__cuda_array_interface__["data"] == (POINTER, True)


@pytest.mark.parametrize(
    "driver", ["cuCtxSetCurrent", "cuMemHostRegister_v2", "cuMemHostGetDevicePointer_v2"], indirect=True
)
def test_mapping__that_is_refused_leaves_nothing_bad_flow(driver: Driver) -> None:
    with Region(4096) as region:
        with pytest.raises(CudaError, match=rf"{driver.failing}: out of memory \(CUDA error 2\)"):
            CudaMapping(region)
        assert driver.names().count("cuDevicePrimaryCtxRelease_v2") == 1
        assert ("cuMemHostUnregister" in driver.names()) == (driver.failing == "cuMemHostGetDevicePointer_v2")


def test_load__without_a_driver_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", failing(OSError("libcuda.so.1: cannot open shared object file")))
    with pytest.raises(CudaError, match=r"no CUDA driver: libcuda\.so\.1: cannot open"):
        cuda.load()


def test_load__with_a_driver_that_finds_no_device_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Driver(failing="cuInit"))
    with pytest.raises(CudaError, match="cuInit: out of memory"):
        cuda.load()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: Driver())
    assert cuda.load().names() == ["cuInit"]


def has_device() -> bool:
    try:
        CudaMapping(Region(4096)).close()
    except CudaError:
        return False
    return True


@pytest.mark.skipif(not has_device(), reason="this machine has no CUDA device")
def test_mapping__the_device_reads_and_writes_in_place() -> None:
    with Region(1 << 20) as region, CudaMapping(region) as mapping:
        region.array[:] = 7
        driver, back = cuda.load(), (ctypes.c_ubyte * 16)()
        assert driver.cuMemcpyDtoH_v2(back, ctypes.c_uint64(mapping.pointer + 100), ctypes.c_size_t(16)) == 0
        assert bytes(back) == bytes([7] * 16)
        assert driver.cuMemsetD8_v2(ctypes.c_uint64(mapping.pointer + 500), ctypes.c_ubyte(9), ctypes.c_size_t(8)) == 0
        assert driver.cuCtxSynchronize() == 0
        assert region.array[499:509].tolist() == [7] + [9] * 8 + [7]
