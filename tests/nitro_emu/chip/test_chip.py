"""nitro_emu.chip.chip: the measured boot, without a process: what is released, and each reason why it is not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from nitro_emu.chip.chip import BootState, CardFiles, Chip
from nitro_emu.chip.pcrs import event_untrusted, replay
from nitro_emu.chip.store import BOOT, SEALED, ChipStore
from nitro_emu.errors import TrustError
from nitro_emu.trust.manifest import open_manifest_untrusted, sign_manifest
from nitro_emu.trust.measure import extend, file_sha384, image_sha384
from tests.nitro_emu.chip.chips import ENVIRONMENT, START, Rig


def assert_sealed(chip: Chip, files: CardFiles, *, reason: str) -> None:
    """A boot gives nothing, for this reason, in one line, and nothing can be asked of the chip afterwards."""
    assert chip.boot(files) is None
    assert chip.state is BootState.SEALED
    assert reason in chip.reason
    assert "\n" not in chip.reason
    assert chip.version == 0
    with pytest.raises(TrustError, match="SEALED"):
        _ = chip.nsm


def test_what_is_as_signed_gets_its_key(rig: Rig) -> None:
    chip = rig.chip()
    secret = chip.boot(rig.files)
    assert secret is not None
    public_key = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    assert public_key == rig.store.load().public_key
    assert (chip.state, chip.reason, chip.version) == (BootState.RUN, "", 1)


def test_registers_are_what_was_measured(rig: Rig) -> None:
    chip = rig.chip()
    chip.boot(rig.files)
    assert chip.pcrs[0] == extend(bytes(48), image_sha384(rig.image))
    assert chip.pcrs[1] == extend(bytes(48), ENVIRONMENT.digest)
    assert chip.pcrs[2] == extend(bytes(48), file_sha384(rig.configuration))
    assert {index for index, value in chip.pcrs.items() if any(value)} == {0, 1, 2, 3, 4, 8}
    assert set(chip.pcrs) == set(range(16))
    assert replay(chip.events) == chip.pcrs


# -- every reason for SEALED ------------------------------------------------------------------------------------


def change_file(rig: Rig) -> None:
    (rig.image / "srd" / "engine.py").write_text("engine = 2\n")


def change_compiled(rig: Rig) -> None:
    (rig.image / "srd" / "engine.cpython-311-x86_64-linux-gnu.so").write_text("\x7fELG")


def add_file(rig: Rig) -> None:
    (rig.image / "nitro_emu" / "chip" / "extra.py").write_text("")


def remove_file(rig: Rig) -> None:
    (rig.image / "devmem" / "pool.py").unlink()


def empty_image(rig: Rig) -> None:
    rig.image.rename(rig.directory / "moved")
    rig.image.mkdir()


def change_configuration(rig: Rig) -> None:
    rig.configuration.write_text(rig.configuration.read_text() + "# a comment\n")


def remove_configuration(rig: Rig) -> None:
    rig.configuration.unlink()


def make_configuration_a_fifo(rig: Rig) -> None:
    rig.configuration.unlink()
    os.mkfifo(rig.configuration)


def put_link_into_image(rig: Rig) -> None:
    (rig.image / "srd" / "link.py").symlink_to("/etc/hostname")


def sign_by_another(rig: Rig) -> None:
    rig.sign(key=generate_private_key(SECP384R1()))


def sign_for_another(rig: Rig) -> None:
    rig.sign(name="card-b")


def damage_manifest(rig: Rig) -> None:
    content = rig.manifest.read_bytes()
    rig.manifest.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def shorten_manifest(rig: Rig) -> None:
    rig.manifest.write_bytes(rig.manifest.read_bytes()[:-1])


def remove_manifest(rig: Rig) -> None:
    rig.manifest.unlink()


def damage_store(rig: Rig) -> None:
    path = rig.chip_directory / SEALED
    path.write_bytes(bytes(60))


def remove_store(rig: Rig) -> None:
    rig.chip_directory.rename(rig.directory / "gone")


def open_store(rig: Rig) -> None:
    (rig.chip_directory / "root.key.pem").chmod(0o644)


def set_clock_back(rig: Rig) -> None:
    rig.clock.time = START - timedelta(days=1)


def set_clock_far_ahead(rig: Rig) -> None:
    rig.clock.time = START + timedelta(days=11 * 365)


REASONS: list[tuple[Callable[[Rig], None], str]] = [
    (change_file, "is not the signed one: srd/engine.py was changed; install it again"),
    (change_compiled, "is not the signed one: srd/engine.cpython-311-x86_64-linux-gnu.so was changed"),
    (add_file, "is not the signed one: nitro_emu/chip/extra.py was added"),
    (remove_file, "is not the signed one: devmem/pool.py is missing"),
    (empty_image, "has no files of devmem, netns, nitro_emu, srd"),
    (change_configuration, "the configuration card-a.yaml is not the signed one"),
    (remove_configuration, "card-a.yaml cannot be read: No such file"),
    (make_configuration_a_fifo, "card-a.yaml is no regular file"),
    (put_link_into_image, "srd/link.py is a symbolic link"),
    (sign_by_another, "card-a.manifest: the manifest says that another vendor signed it"),
    (sign_for_another, "card-a.manifest is for the card card-b, this is card-a"),
    (damage_manifest, "card-a.manifest: the manifest is not as its vendor signed it: the COSE message's signature"),
    (shorten_manifest, "card-a.manifest: the manifest is not as its vendor signed it"),
    (remove_manifest, "card-a.manifest cannot be read: No such file"),
    (damage_store, "the chip's store is damaged: sealed.bin was changed"),
    (remove_store, "chip cannot be read: No such file"),
    (open_store, "root.key.pem: others may use it (mode 644)"),
    (set_clock_back, "the clock says 2026-02-28 12:00, the chip's certificate is valid from 2026-03-01 12:00"),
    (set_clock_far_ahead, "the clock says 2037-"),
]


@pytest.mark.parametrize(("change", "reason"), REASONS, ids=[change.__name__ for change, _ in REASONS])
def test_sealed(rig: Rig, change: Callable[[Rig], None], reason: str) -> None:
    change(rig)
    assert_sealed(rig.chip(), rig.files, reason=reason)


@pytest.mark.parametrize("name", ["card-a.manifest", "card-a.yaml", "image/srd/engine.py"])
def test_one_flipped_bit_at_every_byte_seals(rig: Rig, name: str) -> None:
    path, chip = rig.directory / name, rig.chip()
    content = path.read_bytes()
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        assert chip.boot(rig.files) is None, (position, changed)
    path.write_bytes(content)
    assert chip.boot(rig.files) is not None


def test_a_manifest_without_files_cannot_name_the_one(rig: Rig) -> None:
    manifest = open_manifest_untrusted(rig.manifest.read_bytes(), key=rig.vendor.public_key())
    rig.manifest.write_bytes(sign_manifest(replace(manifest, files={}), key=rig.vendor))
    assert rig.chip().boot(rig.files) is not None
    change_file(rig)
    assert_sealed(rig.chip(), rig.files, reason="its files are not listed")


def test_the_counter_is_on_the_disk_before_the_secret_is_given(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.sign(version=2)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device", descriptor)

    monkeypatch.setattr("nitro_emu.chip.store.os.fsync", fail)
    assert_sealed(rig.chip(), rig.files, reason="state.json cannot be written: No space left on device")


def test_an_internal_error_seals(rig: Rig) -> None:
    def fail() -> None:
        raise ZeroDivisionError("division\nby zero")

    chip = Chip(ChipStore(rig.chip_directory), now=rig.clock, environment=fail)  # type: ignore[arg-type]
    assert_sealed(chip, rig.files, reason="internal error of the chip (ZeroDivisionError: division?by zero)")


def test_a_failure_at_the_end_wipes_what_was_decrypted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytearray] = []
    unseal = ChipStore.unseal_into

    def unseal_and_fail(store: ChipStore, secret: bytearray, **arguments: object) -> None:
        unseal(store, secret, **arguments)  # type: ignore[arg-type]
        assert any(secret)
        seen.append(secret)
        raise TrustError("after all")

    monkeypatch.setattr(ChipStore, "unseal_into", unseal_and_fail)
    assert_sealed(rig.chip(), rig.files, reason="after all")
    assert seen == [bytearray(32)]


# -- one boot after another -------------------------------------------------------------------------------------


def test_each_boot_begins_again(rig: Rig) -> None:
    chip = rig.chip()
    assert chip.boot(rig.files)
    first = chip.pcrs
    content = (rig.image / "srd" / "engine.py").read_text()
    change_file(rig)
    assert_sealed(chip, rig.files, reason="srd/engine.py was changed")
    assert chip.pcrs[0] != first[0]
    (rig.image / "srd" / "engine.py").write_text(content)
    assert chip.boot(rig.files)
    assert (chip.pcrs, chip.reason) == (first, "")


def test_a_reset_forgets_the_card(rig: Rig) -> None:
    chip = rig.chip()
    chip.boot(rig.files)
    chip.reset()
    assert (chip.state, chip.version, chip.events) == (BootState.RESET, 0, [])
    assert not any(map(any, chip.pcrs.values()))
    with pytest.raises(TrustError, match="RESET; boot the card first"):
        _ = chip.nsm


def test_a_later_version_runs_and_stays_the_lowest(rig: Rig) -> None:
    rig.sign(version=5)
    assert rig.chip().boot(rig.files)
    assert rig.chip().boot(rig.files), "the same version again"
    rig.sign(version=4)
    assert_sealed(rig.chip(), rig.files, reason="version 4 is below 5, which has run; a rollback is refused")
    assert rig.store.load().minimum_version == 5


def test_a_version_that_did_not_boot_does_not_count(rig: Rig) -> None:
    rig.sign(version=9)
    change_configuration(rig)
    assert_sealed(rig.chip(), rig.files, reason="configuration")
    rig.sign(version=2)
    assert rig.chip().boot(rig.files)


def test_the_record_of_a_boot(rig: Rig) -> None:
    chip = rig.chip()
    chip.boot(rig.files)
    record = json.loads((rig.chip_directory / BOOT).read_text())
    assert (record["state"], record["version"], record["at"]) == ("RUN", 1, "2026-03-01T12:00:00+00:00")
    events = [event_untrusted(event) for event in record["events"]]
    assert {str(index): value.hex() for index, value in replay(events).items()} == record["pcrs"]
    assert [event.index for event in events] == [8, 1, 0, 2, 3, 4]
    change_configuration(rig)
    chip.boot(rig.files)
    record = json.loads((rig.chip_directory / BOOT).read_text())
    assert record["state"] == "SEALED"
    assert "configuration" in record["reason"]


def test_a_record_that_cannot_be_written_stops_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    (rig.chip_directory / BOOT).mkdir()
    assert rig.chip().boot(rig.files)
    assert "boot.json cannot be written" in caplog.text


def test_status(rig: Rig) -> None:
    chip = rig.chip()
    assert chip.status()["card"] is None
    chip.start()
    assert (chip.status()["card"], chip.status()["state"], chip.status()["version"]) == ("card-a", "RESET", None)
    chip.boot(rig.files)
    status = chip.status()
    assert status["module_id"].startswith("card-a-chip")
    assert (status["state"], status["reason"], status["version"], status["minimum_version"]) == ("RUN", None, 1, 1)


def test_a_damaged_store_has_no_status_of_a_card(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    chip = rig.chip()
    chip.start()
    damage_store(rig)
    chip.boot(rig.files)
    assert (chip.status()["card"], chip.status()["state"]) == (None, "SEALED")
    rig.chip().start()
    assert "damaged" in caplog.text


# -- updates ----------------------------------------------------------------------------------------------------


def test_an_update_is_checked_and_changes_nothing(rig: Rig) -> None:
    chip = rig.chip()
    chip.boot(rig.files)
    before = chip.status()
    change_file(rig)
    change_configuration(rig)
    rig.sign(version=4)
    assert chip.check_update(rig.files) == 4
    assert chip.status() == before
    assert rig.store.load().minimum_version == 1
    assert chip.boot(rig.files)
    assert rig.store.load().minimum_version == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_file, "srd/engine.py was changed"),
        (change_configuration, "configuration"),
        (damage_manifest, "not as its vendor signed it"),
        (sign_for_another, "for the card card-b"),
        (damage_store, "store is damaged"),
    ],
)
def test_an_update_is_refused(rig: Rig, change: Callable[[Rig], None], reason: str) -> None:
    chip = rig.chip()
    chip.boot(rig.files)
    rig.sign(version=2)
    change(rig)
    with pytest.raises(TrustError, match=reason):
        chip.check_update(rig.files)
    assert (chip.state, chip.version) == (BootState.RUN, 1)


def test_an_update_to_an_older_version_is_refused(rig: Rig) -> None:
    chip = rig.chip()
    rig.sign(version=3)
    chip.boot(rig.files)
    rig.sign(version=2)
    with pytest.raises(TrustError, match="version 2 is below 3"):
        chip.check_update(rig.files)
    rig.sign(version=3)
    assert chip.check_update(rig.files) == 3


def test_reasons_name_files_that_no_terminal_can_show(rig: Rig) -> None:
    (rig.image / "srd" / os.fsdecode(b"\xff\n.py")).write_text("")
    assert_sealed(rig.chip(), rig.files, reason="srd/??.py was added")
