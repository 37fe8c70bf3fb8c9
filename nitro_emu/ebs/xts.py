"""AES-256-XTS at the card (IEEE 1619): a device whose bytes are encrypted before they leave.

Each block is a data unit, and its tweak is its number. XTS hides what a block holds and not whether it has changed, and
it has no tag: a server that alters a block alters what is read, unseen but for the checksum that the same server keeps.

What is a hole is zeroes on the servers, too, and must read as zeroes. A block of ciphertext that is all zeroes is
therefore a hole: the chance that a real one looks so is 2 ** -32768. So servers see which blocks were never written or
were trimmed. Zeroes that a host writes are encrypted, but for WRITE_ZEROES, which says of itself what it writes.
"""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from nitro_emu.ebs.device import BLOCK_BYTES, BlockDevice, BlockExtent

KEY_BYTES: Final = 64
"""Of AES-256-XTS: two AES-256 keys."""

_TWEAK_BYTES: Final = 16
_HOLE: Final = bytes(BLOCK_BYTES)


class EncryptedDevice:
    """A `BlockDevice` on another one, which has ciphertext."""

    def __init__(self, device: BlockDevice, *, key: bytes) -> None:
        """`key`: KEY_BYTES, whose two halves differ. Raises ValueError."""
        self.size_bytes = device.size_bytes
        self._device = device
        self._aes = algorithms.AES(key)
        if len(key) != KEY_BYTES or key[: KEY_BYTES // 2] == key[KEY_BYTES // 2 :]:
            raise ValueError(f"a key of AES-256-XTS has {KEY_BYTES} bytes, and two halves that differ")

    async def read(self, offset: int, *, into: memoryview) -> None:
        """Read, and decrypt in place."""
        await self._device.read(offset, into=into)
        for at in range(0, len(into), BLOCK_BYTES):
            block = into[at : at + BLOCK_BYTES]
            if block != _HOLE:
                self._cipher(offset + at).decryptor().update_into(block, block)

    async def write(self, offset: int, *, data: memoryview, fua: bool) -> None:
        """Encrypt into memory of its own, and write that."""
        encrypted = memoryview(bytearray(len(data)))
        for at in range(0, len(data), BLOCK_BYTES):
            until = at + BLOCK_BYTES
            self._cipher(offset + at).encryptor().update_into(data[at:until], encrypted[at:until])
        await self._device.write(offset, data=encrypted, fua=fua)

    async def flush(self) -> None:
        """Flush; see BlockDevice."""
        await self._device.flush()

    async def trim(self, offset: int, *, length_bytes: int) -> None:
        """Trim; see BlockDevice."""
        await self._device.trim(offset, length_bytes=length_bytes)

    async def write_zeroes(self, offset: int, *, length_bytes: int, fua: bool, may_trim: bool) -> None:
        """Write zeroes that are not encrypted: they read as a hole."""
        await self._device.write_zeroes(offset, length_bytes=length_bytes, fua=fua, may_trim=may_trim)

    async def extents(self, offset: int, *, length_bytes: int) -> list[BlockExtent]:
        """Return extents; see BlockDevice."""
        return await self._device.extents(offset, length_bytes=length_bytes)

    def _cipher(self, offset: int) -> Cipher[modes.XTS]:
        tweak = (offset // BLOCK_BYTES).to_bytes(_TWEAK_BYTES, "little")
        return Cipher(self._aes, modes.XTS(tweak))
