"""What `srd send --card` and `srd recv --card` find by the entry point `card` of the group `srd.transports`."""

from __future__ import annotations

from typing import Final, Self

from devmem.errors import DevmemError
from nitro_emu.aio import Device, QpAddress, VerbsError
from nitro_emu.errors import AbiError
from nitro_emu.messages.listener import MessageListener, connect
from nitro_emu.messages.peer import MessagePeer
from srd.errors import SrdError, UsageError
from srd.file_transfer.protocol import CHUNK_BYTES, MAX_CONTROL_BYTES

RECEIVER_SLOTS: Final = 16
"""Chunks under way to a receiver; a sender has memory for more (`srd.file_transfer.read_ahead.SLOTS`), which wait."""
SENDER_SLOTS: Final = 2
"""Control messages under way to a sender: an answer and a verdict."""


class CardTransport:
    """A `srd.file_transfer.transport.Transport`: transfers through a card's device."""

    def __init__(self, device: Device) -> None:
        self._name = device.name
        self._device = device

    @classmethod
    async def open(cls, device: str) -> Self:
        """Open a device. Raises SrdError."""
        return cls(await _open(device))

    @staticmethod
    def check_target(target: str) -> None:
        """Raise UsageError for what is no address of a queue pair."""
        _address_of(target)

    async def connect(self, target: str) -> MessagePeer:
        """Connect to `srd recv --card`. Raises PeerError, SrdError.

        A device that has failed is opened again.
        """
        address = _address_of(target)
        if self._device.ended:
            await self._device.close()
            self._device = await _open(self._name)
        try:
            return await connect(self._device, address, slots=SENDER_SLOTS, slot_bytes=MAX_CONTROL_BYTES)
        except (VerbsError, DevmemError) as error:
            raise SrdError(f"{self._name}: {error}") from error

    async def listen(self) -> MessageListener:
        """Wait for peers. Raises SrdError."""
        try:
            return await MessageListener.create(self._device, slots=RECEIVER_SLOTS, slot_bytes=CHUNK_BYTES)
        except (VerbsError, DevmemError) as error:
            raise SrdError(f"{self._name}: {error}") from error

    async def close(self) -> None:
        """Close the device, and all peers."""
        await self._device.close()


async def _open(name: str) -> Device:
    try:
        return await Device.open(name)
    except VerbsError as error:
        raise SrdError(f"--card {name}: {error}") from error


def _address_of(target: str) -> QpAddress:
    try:
        return QpAddress.of_text_untrusted(target)
    except AbiError as error:
        raise UsageError(f"{error}; take what srd recv --card prints") from error
