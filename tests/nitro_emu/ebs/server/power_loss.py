"""A store that is written to, and loses power again and again."""

from __future__ import annotations

from random import Random

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.server.entries import BlockKind
from nitro_emu.ebs.server.store import BlockStore
from nitro_emu.ebs.server.wal import WalRecord, checksums
from tests.nitro_emu.ebs.virtual_disk import VirtualDisk

SIZE_BYTES = 16 * BLOCK_BYTES


class _Never(Random):
    """By it, nothing outlives a loss of power that was not synchronised."""

    def random(self) -> float:
        return 1.0


NEVER = _Never()


def pattern(number: int, *, blocks: int = 1) -> bytes:
    return Random(number).randbytes(blocks * BLOCK_BYTES)


def put(store: BlockStore, block: int, data: bytes, *, version: int, is_synced: bool = True) -> None:
    record = WalRecord(BlockKind.DATA, version, block, len(data) // BLOCK_BYTES, crcs=checksums(data))
    appended = store.append(record, memoryview(data))
    if is_synced:
        sync(store)
        store.apply(appended, record, memoryview(data))


def put_zero(
    store: BlockStore, block: int, count: int, *, version: int, kind: BlockKind, forces_before: int = 0
) -> None:
    record = WalRecord(kind, version, block, count, forces_before)
    if kind is BlockKind.ABSENT:
        store.keep(record)
    appended = store.append(record, memoryview(b""))
    sync(store)
    store.apply(appended, record, memoryview(b""))


def sync(store: BlockStore) -> None:
    files, number = store.to_sync()
    for file in files:
        file.sync()
    store.synced(number)


def get(store: BlockStore, block: int, *, blocks: int = 1) -> bytes:
    into = bytearray(blocks * BLOCK_BYTES)
    assert store.read(block, into=memoryview(into))
    return bytes(into)


def lose_power_often(seed: int) -> None:
    """Blocks are what was acknowledged last, or a write after that, whole. Logs of 20 kB take turns often."""
    random = Random(seed)
    disk, version = VirtualDisk(), 0
    acknowledged, later = dict.fromkeys(range(8), bytes(BLOCK_BYTES)), dict[int, list[bytes]]()
    for _ in range(6):
        store = BlockStore(disk, size_bytes=SIZE_BYTES, log_bytes=20_000)
        for block in range(8):
            found = get(store, block)
            assert found in (acknowledged[block], *later.get(block, [])), f"seed {seed}, block {block}"
            acknowledged[block] = found
        later = {}
        for _ in range(random.randrange(12)):
            version += 1
            first, count, is_synced = random.randrange(6), random.randrange(1, 3), random.random() < 0.7
            data = pattern(version, blocks=count)
            put(store, first, data, version=version, is_synced=is_synced)
            for at in range(count):
                content = data[at * BLOCK_BYTES :][:BLOCK_BYTES]
                if is_synced:
                    acknowledged[first + at], later[first + at] = content, []
                else:
                    later.setdefault(first + at, []).append(content)
            if store.wants_checkpoint and random.random() < 0.8:
                for file in store.to_checkpoint():
                    file.sync()
                store.checkpointed()
        disk = disk.after_power_loss(random)


def lose_power_while_absent(seed: int) -> None:
    """Blocks are written, become absent, and are given older data and what was decided: the newest data is held."""
    random = Random(seed)
    disk, version = VirtualDisk(), 0
    held, absent = dict.fromkeys(range(4), (0, bytes(BLOCK_BYTES))), dict.fromkeys(range(4), 0)
    for _ in range(8):
        store = BlockStore(disk, size_bytes=SIZE_BYTES, log_bytes=20_000)
        for block, (at, content) in held.items():
            assert int(store.held(block, count=1).version[0]) == at, f"seed {seed}, block {block}"
            assert not at or store.held_data(block, count=1, version=at) == content
            assert bool(absent[block]) == (store.entries(block, count=1).kind[0] == BlockKind.ABSENT)
        for _ in range(random.randrange(8)):
            block, version = random.randrange(4), version + 2
            if random.random() < 0.4:
                put_zero(store, block, 1, version=version, kind=BlockKind.ABSENT, forces_before=1)
                absent[block] = version
            else:
                at = random.choice((version, max(absent[block], held[block][0] + 1), max(absent[block] - 1, 1)))
                put(store, block, pattern(at), version=at)
                if at > held[block][0]:
                    held[block] = (at, pattern(at))
                    absent[block] = 0 if at >= absent[block] else absent[block]
            if store.wants_checkpoint and random.random() < 0.8:
                for file in store.to_checkpoint():
                    file.sync()
                store.checkpointed()
        disk = disk.after_power_loss(random)


def lose_power_after_a_start() -> None:
    """A start has put into the store what was in the log, which is not read again, and power is lost."""
    disk = VirtualDisk()
    store = BlockStore(disk, size_bytes=SIZE_BYTES)
    _become_absent(store)
    put(store, 0, pattern(3), version=3)
    for _ in range(2):
        disk = disk.after_power_loss(NEVER)
        store = BlockStore(disk, size_bytes=SIZE_BYTES)
        _check_held(store)


def lose_power_after_a_checkpoint() -> None:
    """What a log had is in the store, the other log's header, which the kernel wrote back, says so: power is lost."""
    disk = VirtualDisk()
    store = BlockStore(disk, size_bytes=SIZE_BYTES, log_bytes=6000)
    _become_absent(store)
    records = [WalRecord(BlockKind.DATA, at, at - 3, 1, crcs=checksums(pattern(at))) for at in (3, 4)]
    appended = [store.append(record, memoryview(pattern(record.version))) for record in records]
    sync(store)
    for each, record in zip(appended, records, strict=True):
        store.apply(each, record, memoryview(pattern(record.version)))
    assert store.wants_checkpoint
    for file in store.to_checkpoint():
        file.sync()
    store.checkpointed()
    disk.files["log.1"].sync()
    _check_held(BlockStore(disk.after_power_loss(NEVER), size_bytes=SIZE_BYTES))


def _become_absent(store: BlockStore) -> None:
    """Have the first block be written, and become absent: what it is given at version 3 is held beside."""
    put(store, 0, pattern(1), version=1)
    put_zero(store, 0, 1, version=5, kind=BlockKind.ABSENT, forces_before=2)


def _check_held(store: BlockStore) -> None:
    assert store.entries(0, count=1).version.tolist() == [5]
    assert store.held(0, count=1).version.tolist() == [3]
    assert store.held_data(0, count=1, version=3) == pattern(3)
