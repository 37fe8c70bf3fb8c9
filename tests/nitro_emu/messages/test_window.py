"""Windows: a message is complete when its bytes and its description are there; nothing else is believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nitro_emu.aio import Device
from nitro_emu.messages.layouts import MessageError, Written
from nitro_emu.messages.window import ReceiveWindow

WRITTEN = Written(1, 10, 7)


async def test_window__in_any_order_and_again_after_the_release(run_dir: Path) -> None:
    async with await Device.open("efa_0", directory=run_dir) as device:
        window = await ReceiveWindow.create(device, slots=2, slot_bytes=100)
        for _ in range(2):
            assert window.on_landed(1, length=10) is None
            assert window.on_written(WRITTEN) == WRITTEN
            assert len(window.copy_of(WRITTEN)) == 10
            window.release(1)
            assert window.on_written(WRITTEN) is None
            assert window.on_landed(1, length=10) == WRITTEN
            window.release(1)
        await window.close()
        assert len(window.copy_of(WRITTEN)) == 0


async def test_window__what_is_not_believed_bad_flow(run_dir: Path) -> None:
    async with await Device.open("efa_0", directory=run_dir) as device:
        window = await ReceiveWindow.create(device, slots=2, slot_bytes=100)
        for slot, length in ((2, 10), (0, 101), (1 << 31, 1)):
            with pytest.raises(MessageError):
                window.on_landed(slot, length=length)
            with pytest.raises(MessageError):
                window.on_written(Written(slot, length, None))
        window.on_written(WRITTEN)
        with pytest.raises(MessageError, match="in use"):
            window.on_written(WRITTEN)
        with pytest.raises(MessageError, match="of which 9 were written"):
            window.on_landed(1, length=9)
        window.on_landed(0, length=5)
        with pytest.raises(MessageError, match="in use"):
            window.on_landed(0, length=5)
        await window.close()
