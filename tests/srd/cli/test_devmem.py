"""`srd recv --devmem`: invalid sizes, and the smallest valid one."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from devmem.errors import RegionError
from devmem.region import memory_bytes
from srd.cli.devmem import MIN_BYTES, DeviceMemory
from srd.endpoint import Endpoint
from tests.srd.cli.processes import Called, assert_fails, names, receiver, receives, srd
from tests.srd.loopback import content


@pytest.mark.parametrize("size_bytes", [MIN_BYTES, 33 << 20, 34 << 20, 256 << 20, 4 << 30])
async def test_memory__the_granted_window_fits(size_bytes: int) -> None:
    memory = DeviceMemory(size_bytes)
    async with await Endpoint.listen("127.0.0.1", port=0, config=memory.config) as endpoint:
        assert memory.figures() == {}
        memory.bind(endpoint)
        assert memory.figures() == {"devmem_bytes": 0, "linear_bytes": 0, "refused_packets": 0}
        assert memory._queue is not None
        free_bytes = memory._queue.free_bytes
        assert free_bytes >= 2 * memory.config.protocol.receive_window_bytes - memory._queue._memory.pool.chunk_bytes
    memory.close()
    assert memory.region.fd < 0


def test_memory__too_small_bad_flow() -> None:
    with pytest.raises(click.UsageError, match=f"--devmem {MIN_BYTES - 1}: is less than the {MIN_BYTES} bytes"):
        DeviceMemory(MIN_BYTES - 1)


def test_memory__larger_than_the_machine_bad_flow() -> None:
    with pytest.raises(RegionError, match="more than this machine's memory"):
        DeviceMemory(memory_bytes() + 1)


@pytest.mark.parametrize(("size", "status"), [("1M", 2), ("lots", 2), ("9999T", 1)])
def test_recv__invalid_size_bad_flow(output: Path, called: Called, size: str, status: int) -> None:
    result = called(*receives(output, "--devmem", size))
    assert_fails(result, status=status, error="")


def test_recv__a_file_ten_times_the_region(inputs: Path, output: Path) -> None:
    """The sender waits for credit; no memory is overwritten."""
    file = inputs / "a.bin"
    file.write_bytes(content(80 << 20, seed=7))
    with receiver(output, "--devmem", str(MIN_BYTES), "--once") as (process, target):
        assert srd("send", str(file), target).returncode == 0
        assert process.event("received")["linear_bytes"] == 0
        assert process.wait() == 0
    assert names(output) == ["a.bin"]
    assert (output / "a.bin").read_bytes() == file.read_bytes()
