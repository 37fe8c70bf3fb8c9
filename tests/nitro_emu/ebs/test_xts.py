"""Encryption at the card: beside XTS made here from AES alone (IEEE 1619, section 5.3)."""

from __future__ import annotations

import os

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.memory import MemoryDevice
from nitro_emu.ebs.xts import KEY_BYTES, EncryptedDevice

KEY = bytes(range(KEY_BYTES))
SIZE = 8 * BLOCK_BYTES


def aes(key: bytes, block: bytes) -> bytes:
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)  # noqa: S305 - XTS's own parts


def xts(unit: int, plain: bytes) -> bytes:
    """Encrypt one data unit, 16 bytes at a time."""
    tweak = aes(KEY[32:], unit.to_bytes(16, "little"))
    found = b""
    for at in range(0, len(plain), 16):
        masked = bytes(a ^ b for a, b in zip(plain[at : at + 16], tweak, strict=True))
        found += bytes(a ^ b for a, b in zip(aes(KEY[:32], masked), tweak, strict=True))
        doubled = int.from_bytes(tweak, "little") << 1
        tweak = (doubled ^ (0x87 | 1 << 128 if doubled >> 128 else 0)).to_bytes(16, "little")
    return found


async def bytes_of(device: MemoryDevice | EncryptedDevice) -> bytes:
    into = bytearray(SIZE)
    await device.read(0, into=memoryview(into))
    return bytes(into)


async def test_servers_have_the_ciphertext_that_the_standard_says() -> None:
    servers = MemoryDevice(SIZE)
    device, plain = EncryptedDevice(servers, key=KEY), os.urandom(3 * BLOCK_BYTES)
    await device.write(2 * BLOCK_BYTES, data=memoryview(plain), fua=False)
    expected = b"".join(xts(2 + block, plain[block * BLOCK_BYTES :][:BLOCK_BYTES]) for block in range(3))
    assert (await bytes_of(servers))[2 * BLOCK_BYTES : 5 * BLOCK_BYTES] == expected
    assert await bytes_of(device) == bytes(2 * BLOCK_BYTES) + plain + bytes(3 * BLOCK_BYTES)


async def test_zeroes_that_are_written_are_encrypted_and_holes_are_zeroes() -> None:
    servers = MemoryDevice(SIZE)
    device = EncryptedDevice(servers, key=KEY)
    await device.write(0, data=memoryview(bytes(SIZE)), fua=False)
    assert not any(part == bytes(16) for part in [(await bytes_of(servers))[at : at + 16] for at in range(0, SIZE, 16)])
    assert await bytes_of(device) == bytes(SIZE)
    await device.trim(0, length_bytes=BLOCK_BYTES)
    await device.write_zeroes(BLOCK_BYTES, length_bytes=BLOCK_BYTES, fua=False, may_trim=False)
    assert (await bytes_of(servers))[: 2 * BLOCK_BYTES] == bytes(2 * BLOCK_BYTES)
    assert await bytes_of(device) == bytes(SIZE)


async def test_another_key_does_not_read_it() -> None:
    servers = MemoryDevice(SIZE)
    await EncryptedDevice(servers, key=KEY).write(0, data=memoryview(b"secret" * BLOCK_BYTES)[:BLOCK_BYTES], fua=False)
    found = await bytes_of(EncryptedDevice(servers, key=KEY[::-1]))
    assert b"secret" not in found
    assert b"secret" not in await bytes_of(servers)


@pytest.mark.parametrize("key", [bytes(KEY_BYTES), KEY[:32], b""])
def test_a_weak_key_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="key"):
        EncryptedDevice(MemoryDevice(SIZE), key=key)
