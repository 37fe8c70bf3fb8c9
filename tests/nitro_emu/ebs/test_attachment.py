"""An attached volume: its control socket, and its end."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nitro_emu.ebs import attachment as attachment_module
from nitro_emu.ebs.attachment import Attachment, AttachmentSettings, ask, claimed
from nitro_emu.ebs.device import BlockDevice
from nitro_emu.ebs.errors import DeviceError, VolumeError
from tests.nitro_emu.ebs.model import CheckedDevice, disk_full
from tests.nitro_emu.ebs.nbd.client import WRITE, Client
from tests.patience import until

SIZE = 1 << 20


@asynccontextmanager
async def opened(settings: AttachmentSettings, *, device: BlockDevice) -> AsyncIterator[Attachment]:
    with claimed(settings) as control:
        async with Attachment.open(settings, control=control, device=device) as attachment:
            yield attachment


async def asked(run_dir: Path, command: str, **fields: object) -> dict[str, object]:
    """Ask from a thread, as a command would from its process."""
    return await asyncio.to_thread(ask, run_dir, "vol-1", command, **fields)


def left_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


@pytest.mark.parametrize(
    "line", [b"\n", b"[]\n", b'{"command": "fly"}\n', b"{" * 5000 + b"\n", b"\xff\n", b"x" * 9000, b"[" * 900 + b"\n"]
)
async def test_what_is_no_command_ends_its_own_connection(tmp_path: Path, line: bytes) -> None:
    async with opened(AttachmentSettings(name="vol-1", run_dir=tmp_path), device=CheckedDevice(SIZE)) as attachment:
        reader, writer = await asyncio.open_unix_connection(attachment.settings.control)
        writer.write(line)
        writer.write_eof()
        answer = await reader.read()
        if len(line) <= attachment_module.MAX_REQUEST_BYTES:
            assert json.loads(answer) == {"error": "this is no command; there are detach, status"}
        else:
            assert answer == b""
        writer.close()
        await writer.wait_closed()
        assert (await asked(tmp_path, "status"))["size_bytes"] == SIZE


async def test_a_client_that_says_nothing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment_module, "ANSWER_S", 0.0)
    async with opened(AttachmentSettings(name="vol-1", run_dir=tmp_path), device=CheckedDevice(SIZE)) as attachment:
        reader, writer = await asyncio.open_unix_connection(attachment.settings.control)
        assert await reader.read() == b""
        writer.close()


async def test_detaching_waits_for_writes_and_flushes_them(tmp_path: Path) -> None:
    device = CheckedDevice(SIZE)
    async with opened(AttachmentSettings(name="vol-1", run_dir=tmp_path), device=device) as attachment:
        client = await Client.attached(tmp_path / "vol-1.sock")
        device.gate.clear()
        client.send(WRITE, data=b"kept")
        await until(lambda: attachment.front.statistics.queue_length == 1)
        with pytest.raises(VolumeError, match="1 NBD clients use it; end them first, or give --force"):
            await asked(tmp_path, "detach")
        detaching = asyncio.ensure_future(asked(tmp_path, "detach", force=True))
        await attachment.detached.wait()
        asyncio.get_running_loop().call_soon(device.gate.set)
    await detaching
    assert [call[0] for call in device.calls] == ["read", "write", "flush"]
    assert not left_in(tmp_path)
    client.writer.transport.abort()


async def test_who_detaches_hears_that_the_last_flush_has_failed(tmp_path: Path) -> None:
    device = CheckedDevice(SIZE)
    attached = opened(AttachmentSettings(name="vol-1", run_dir=tmp_path), device=device)
    attachment = await attached.__aenter__()
    detaching = asyncio.ensure_future(asked(tmp_path, "detach"))
    await attachment.detached.wait()
    device.error = disk_full()
    with pytest.raises(DeviceError, match="disks are full"):
        await attached.__aexit__(None, None, None)
    with pytest.raises(VolumeError, match="volume vol-1: the servers' disks are full"):
        await detaching
    assert not left_in(tmp_path)


async def test_a_volume_is_attached_once(tmp_path: Path) -> None:
    settings = AttachmentSettings(name="vol-1", run_dir=tmp_path)
    async with opened(settings, device=CheckedDevice(SIZE)):
        holder = f"volume vol-1 is attached already, by process {os.getpid()}, which listens at"
        with pytest.raises(VolumeError, match=holder), claimed(settings):
            pass
        assert (await asked(tmp_path, "status"))["name"] == "vol-1"


async def test_a_run_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VolumeError, match=r"cannot listen: .*; give another --run-dir"):
        async with opened(AttachmentSettings(name="vol-1", run_dir=tmp_path / "file"), device=CheckedDevice(SIZE)):
            pass
