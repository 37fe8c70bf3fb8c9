"""The store on a disk that fails."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.server import store as store_module
from nitro_emu.ebs.server.disk import Disk, OsDisk
from nitro_emu.ebs.server.entries import EXTENT_BLOCKS, BlockKind, Entries, version_of
from nitro_emu.ebs.server.store import AbsentError, BlockStore, StoreError
from tests.nitro_emu.ebs.server.power_loss import (
    SIZE_BYTES,
    get,
    lose_power_after_a_checkpoint,
    lose_power_after_a_start,
    lose_power_often,
    lose_power_while_absent,
    pattern,
    put,
    put_zero,
)
from tests.nitro_emu.ebs.virtual_disk import VirtualDisk


@pytest.fixture(params=["files", "virtual"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return OsDisk(tmp_path) if request.param == "files" else VirtualDisk()


def test_what_was_never_written_is_zero(disk: Disk) -> None:
    assert get(BlockStore(disk, size_bytes=SIZE_BYTES), 3, blocks=13) == bytes(13 * BLOCK_BYTES)


def test_writes_are_read_and_outlive_a_start(disk: Disk) -> None:
    store = BlockStore(disk, size_bytes=SIZE_BYTES)
    put(store, 1, pattern(1, blocks=4), version=1)
    put(store, 2, pattern(2), version=2)
    put_zero(store, 4, 1, version=3, kind=BlockKind.HOLE)
    wanted = pattern(1, blocks=4)[:BLOCK_BYTES] + pattern(2) + pattern(1, blocks=4)[2 * BLOCK_BYTES :][:BLOCK_BYTES]
    wanted = bytes(BLOCK_BYTES) + wanted + bytes(BLOCK_BYTES)
    assert get(store, 0, blocks=5) == wanted
    store.close()
    assert get(BlockStore(disk, size_bytes=SIZE_BYTES), 0, blocks=5) == wanted


def test_an_older_write_that_comes_late_changes_nothing() -> None:
    store = BlockStore(VirtualDisk(), size_bytes=SIZE_BYTES)
    put(store, 1, pattern(2), version=2)
    put(store, 0, pattern(1, blocks=3), version=1)
    assert get(store, 0, blocks=3) == pattern(1, blocks=3)[:BLOCK_BYTES] + pattern(2) + pattern(1, blocks=3)[8192:]


def test_what_is_decided_replaces_what_is_newer() -> None:
    store = BlockStore(VirtualDisk(), size_bytes=SIZE_BYTES)
    put(store, 0, pattern(1), version=version_of(1, sequence=9))
    put(store, 1, pattern(2), version=version_of(2, sequence=1))
    put_zero(store, 0, 2, version=version_of(1, sequence=5), kind=BlockKind.ABSENT, forces_before=2)
    assert get(store, 1) == pattern(2)
    with pytest.raises(AbsentError, match="block 0 is absent"):
        get(store, 0)
    put(store, 0, pattern(3), version=version_of(1, sequence=5))
    assert get(store, 0) == pattern(3)


def test_an_absent_block_keeps_the_newest_data_that_it_was_given() -> None:
    disk = VirtualDisk()
    for power in range(3):
        store = BlockStore(disk, size_bytes=SIZE_BYTES)
        if not power:
            put(store, 0, pattern(1, blocks=2), version=1)
            put_zero(store, 0, 2, version=5, kind=BlockKind.ABSENT, forces_before=2)
            put(store, 0, pattern(2), version=3)  # older than what was decided
            put(store, 0, pattern(3), version=2)
        held = store.held(0, count=3)
        assert held.version.tolist() == [3, 1, 0]
        assert held.kind.tolist() == [BlockKind.DATA, BlockKind.DATA, BlockKind.HOLE]
        assert store.held_data(0, count=1, version=3) == pattern(2)
        assert store.held_data(1, count=1, version=1) == pattern(1, blocks=2)[BLOCK_BYTES:]
        with pytest.raises(AbsentError, match="block 0 is absent"):
            get(store, 0)
        with pytest.raises(AbsentError, match="block 1 is absent"):
            store.held_data(0, count=2, version=3)
        disk = disk.after_power_loss(Random(power))


def test_what_is_lost_is_not_held(disk: Disk) -> None:
    store = BlockStore(disk, size_bytes=SIZE_BYTES)
    put(store, 0, pattern(1), version=4)
    put_zero(store, 0, 1, version=4, kind=BlockKind.ABSENT)  # as `lost` has it
    put(store, 0, pattern(2), version=3)
    assert store.held(0, count=1).kind.tolist() == [BlockKind.ABSENT]
    put_zero(store, 0, 1, version=9, kind=BlockKind.ABSENT, forces_before=2)
    assert store.held(0, count=1).kind.tolist() == [BlockKind.ABSENT]
    put(store, 0, pattern(3), version=9)
    assert get(store, 0) == pattern(3)


def test_a_replica_that_has_lost_all_does_not_say_that_a_block_was_never_written() -> None:
    store = BlockStore(VirtualDisk(), size_bytes=SIZE_BYTES)
    put_zero(store, 0, 1, version=0, kind=BlockKind.ABSENT)
    put_zero(store, 0, 1, version=9, kind=BlockKind.ABSENT, forces_before=2)
    put(store, 0, pattern(1), version=3)
    assert store.held(0, count=1).kind.tolist() == [BlockKind.ABSENT]


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_keeps_what_absent_blocks_had(seed: int) -> None:
    lose_power_while_absent(seed)


def test_power_loss_keeps_what_a_checkpoint_has_let_go_of() -> None:
    lose_power_after_a_start()
    lose_power_after_a_checkpoint()


@pytest.mark.parametrize("seed", range(40))
def test_power_loss_keeps_what_was_acknowledged_and_tears_nothing(seed: int) -> None:
    lose_power_often(seed)


def test_a_sync_that_fails_stops_the_store_and_loses_nothing() -> None:
    disk = VirtualDisk()
    store = BlockStore(disk, size_bytes=SIZE_BYTES)
    put(store, 0, pattern(1), version=1)
    disk.fails_sync = True
    with pytest.raises(OSError, match="Input/output"):
        put(store, 0, pattern(2), version=2)
    failure = store.sync_failed(OSError(5, "Input/output error"))
    for use in (lambda: get(store, 0), lambda: put(store, 1, pattern(3), version=3)):
        with pytest.raises(StoreError) as caught:
            use()
        assert caught.value is failure
    assert str(failure) == "the disk has failed (Input/output error); mend it, and start the server again"
    assert get(BlockStore(disk.after_power_loss(Random(1)), size_bytes=SIZE_BYTES), 0) == pattern(1)


def test_a_full_disk_refuses_the_write_and_goes_on() -> None:
    disk = VirtualDisk()
    store = BlockStore(disk, size_bytes=SIZE_BYTES)
    put(store, 0, pattern(1), version=1)
    disk.is_full = True
    with pytest.raises(StoreError, match="No space left"):
        put(store, 0, pattern(2), version=2)
    disk.is_full = False
    assert get(store, 0) == pattern(1)
    put(store, 0, pattern(3), version=3)
    assert get(BlockStore(disk.after_kill(), size_bytes=SIZE_BYTES), 0) == pattern(3)


def test_a_corrupt_block_is_found_and_not_returned() -> None:
    disk = VirtualDisk()
    store = BlockStore(disk, size_bytes=SIZE_BYTES)
    put(store, 0, pattern(1, blocks=2), version=1)
    disk.files["data"].cached[BLOCK_BYTES + 100] ^= 1
    assert get(store, 0) == pattern(1, blocks=2)[:BLOCK_BYTES]
    with pytest.raises(AbsentError, match="block 1 is corrupt"):
        get(store, 0, blocks=2)


def test_a_corrupt_entry_is_found() -> None:
    disk = VirtualDisk()
    store = BlockStore(disk, size_bytes=SIZE_BYTES)
    put(store, 0, pattern(1, blocks=2), version=7)
    for at in range(16, 32):
        disk.files["entries"].cached[at] ^= 0x10
        entries = store.entries(0, count=2)
        assert (entries.kind[0], entries.kind[1], entries.version[1]) == (BlockKind.DATA, BlockKind.ABSENT, 0)
        disk.files["entries"].cached[at] ^= 0x10


def test_a_record_that_was_acknowledged_and_is_corrupt_is_named() -> None:
    """The last record of a log may be torn; of one that a later record vouches for this is rot."""
    disk = VirtualDisk()
    store = BlockStore(disk, size_bytes=SIZE_BYTES)
    for version in (1, 2, 3):
        put(store, version, pattern(version), version=version)
    log = disk.files["log.0"] if disk.files["log.0"].cached else disk.files["log.1"]
    log.cached[log.cached.index(pattern(2))] ^= 1
    with pytest.raises(VolumeError, match="log record 2 was acknowledged and is corrupt: remove this replica's"):
        BlockStore(disk.after_kill(), size_bytes=SIZE_BYTES)


def test_a_torn_record_is_not_replayed() -> None:
    disk = VirtualDisk()
    store = BlockStore(disk, size_bytes=SIZE_BYTES)
    put(store, 0, pattern(1), version=1)
    put(store, 0, pattern(2), version=2, is_synced=False)
    log = disk.files["log.0"] if disk.files["log.0"].cached else disk.files["log.1"]
    log.cached[-1] ^= 1
    assert get(BlockStore(disk.after_kill(), size_bytes=SIZE_BYTES), 0) == pattern(1)


def test_digests_tell_versions_apart_and_what_is_absent() -> None:
    one, other = (BlockStore(VirtualDisk(), size_bytes=2 * EXTENT_BLOCKS * BLOCK_BYTES) for _ in range(2))
    assert one.digest(0) == one.digest(1) == other.digest(0)
    put(one, 5, pattern(1), version=1)
    assert one.digest(0) != other.digest(0)
    put(other, 5, pattern(1), version=1)
    assert one.digest(0) == other.digest(0)
    put_zero(one, 5, 1, version=1, kind=BlockKind.ABSENT)
    assert one.digest(0) != other.digest(0)


def test_entries_of_another_place_are_not_taken() -> None:
    raw = Entries.alike(2, version=3, kind=BlockKind.ZERO).encode(first_block=10)
    assert Entries.decode_untrusted(raw, first_block=10).kind.tolist() == [BlockKind.ZERO, BlockKind.ZERO]
    assert Entries.decode_untrusted(raw, first_block=11).kind.tolist() == [BlockKind.ABSENT, BlockKind.ABSENT]


@pytest.mark.sources  # replaces a constant
def test_digests_of_a_large_volume_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_KEPT_DIGESTS", 3)
    store = BlockStore(VirtualDisk(), size_bytes=SIZE_BYTES)
    put(store, 1, pattern(1), version=1)
    first = [store.digest(extent) for extent in range(10)]
    assert len(store._digests) <= 3
    assert [store.digest(extent) for extent in range(10)] == first
    assert first[0] != first[1]
