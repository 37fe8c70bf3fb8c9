"""nitro_emu.chip.store: what survives, and how each kind of damage is found."""

from __future__ import annotations

import base64
import os
import shutil
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from nitro_emu.chip.store import INTERMEDIATE, ROOT, ROOT_KEY, SEALED, STATE, VENDOR, ChipStore
from nitro_emu.errors import TrustError
from nitro_emu.trust.pki import public_key_pem
from tests.nitro_emu.chip.chips import START, Rig


def unsealed(store: ChipStore) -> bytearray:
    secret = bytearray(32)
    store.unseal_into(secret, contents=store.load())
    return secret


def test_a_store_is_as_it_was_made(rig: Rig) -> None:
    contents = ChipStore(rig.chip_directory).load()
    assert (contents.card, contents.minimum_version) == ("card-a", 1)
    assert contents.vendor == rig.vendor.public_key()
    contents.intermediate.certificate.verify_directly_issued_by(contents.root.certificate)
    secret = X25519PrivateKey.from_private_bytes(unsealed(rig.store))
    assert secret.public_key().public_bytes_raw() == contents.public_key


def test_directory_and_files_are_the_users_alone(rig: Rig) -> None:
    assert stat.S_IMODE(rig.chip_directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in rig.chip_directory.iterdir()} == {0o600}


def test_the_secret_is_in_no_file(rig: Rig) -> None:
    secret = bytes(unsealed(rig.store))
    for path in rig.chip_directory.iterdir():
        content = path.read_bytes()
        assert secret not in content
        assert base64.b64encode(secret) not in content


def test_two_chips_have_nothing_in_common(rig: Rig, tmp_path: Path) -> None:
    other = ChipStore.create(tmp_path / "other", vendor=rig.vendor.public_key(), card="card-a", now=START)
    assert unsealed(other) != unsealed(rig.store)
    assert other.load().root.certificate != rig.store.load().root.certificate


@pytest.mark.parametrize("name", [ROOT_KEY, ROOT, "intermediate.key.pem", INTERMEDIATE, VENDOR, SEALED, STATE])
def test_a_flipped_bit_anywhere_is_found(rig: Rig, name: str) -> None:
    path = rig.chip_directory / name
    content = path.read_bytes()
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        with pytest.raises(TrustError, match=f"damaged: ({name}|{STATE}) was changed|{ROOT_KEY} has"):
            rig.store.load()


@pytest.mark.parametrize("name", [ROOT_KEY, ROOT, INTERMEDIATE, VENDOR, SEALED, STATE])
def test_a_missing_file_is_named(rig: Rig, name: str) -> None:
    (rig.chip_directory / name).unlink()
    with pytest.raises(TrustError, match=f"{name} cannot be read: No such file"):
        rig.store.load()


@pytest.mark.parametrize("name", [ROOT_KEY, ROOT, INTERMEDIATE, VENDOR, SEALED, STATE])
def test_a_file_of_another_chip_is_found(rig: Rig, tmp_path: Path, name: str) -> None:
    other = ChipStore.create(tmp_path / "other", vendor=rig.vendor.public_key(), card="card-a", now=START)
    other_vendor = public_key_pem(generate_private_key(SECP384R1()).public_key())
    content = other_vendor if name == VENDOR else (other.path / name).read_bytes()
    (rig.chip_directory / name).write_bytes(content)
    with pytest.raises(TrustError, match="the chip's store is damaged"):
        rig.store.load()


def test_a_state_in_other_words_is_found(rig: Rig) -> None:
    path = rig.chip_directory / STATE
    content = path.read_bytes()
    for changed in (content + b"\n", content.replace(b"{", b'{"minimum_version": 1, ', 1)):
        path.write_bytes(changed)
        with pytest.raises(TrustError, match=r"damaged: state\.json was changed"):
            rig.store.load()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mac": 1}', '{"mac": "é"}', "[" * 100_000])
def test_a_state_that_is_none_is_found(rig: Rig, text: str) -> None:
    (rig.chip_directory / STATE).write_text(text)
    with pytest.raises(TrustError, match=r"damaged: state\.json was changed"):
        rig.store.load()


@pytest.mark.parametrize("name", [".", ROOT_KEY, SEALED])
def test_what_others_may_read_is_refused(rig: Rig, name: str) -> None:
    path = rig.chip_directory / name
    path.chmod(0o750)
    with pytest.raises(TrustError, match=r"others may use it \(mode 750\); run: chmod go-rwx"):
        rig.store.load()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_another_user_owns_is_refused(rig: Rig) -> None:
    os.chown(rig.chip_directory / SEALED, 12345, 12345)
    with pytest.raises(TrustError, match="belongs to another user"):
        rig.store.load()


def test_a_fifo_or_link_in_place_of_a_file_is_refused(rig: Rig) -> None:
    path = rig.chip_directory / SEALED
    moved = path.rename(rig.directory / SEALED)
    path.symlink_to(moved)
    with pytest.raises(TrustError, match="another kind of file"):
        rig.store.load()
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(TrustError, match="another kind of file"):
        rig.store.load()


def test_the_lowest_version_survives_and_never_falls(rig: Rig) -> None:
    contents = rig.store.set_minimum_version(rig.store.load(), version=5)
    assert contents.minimum_version == rig.store.load().minimum_version == 5
    assert rig.store.set_minimum_version(contents, version=4).minimum_version == 5
    assert ChipStore(rig.chip_directory).load().minimum_version == 5
    assert unsealed(rig.store)


def test_what_has_files_is_not_made_a_chip(rig: Rig, tmp_path: Path) -> None:
    before = unsealed(rig.store)
    with pytest.raises(TrustError, match="it has files; name a new directory"):
        ChipStore.create(rig.chip_directory, vendor=rig.vendor.public_key(), card="card-a", now=START)
    assert unsealed(rig.store) == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".chip")]
    with pytest.raises(TrustError, match="no card's name"):
        ChipStore.create(tmp_path / "x", vendor=rig.vendor.public_key(), card="Card A", now=START)


def test_an_empty_directory_becomes_a_chip(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=0o755)
    ChipStore.create(tmp_path / "empty", vendor=rig.vendor.public_key(), card="card-a", now=START).load()


def test_a_whole_older_copy_is_not_found(rig: Rig, tmp_path: Path) -> None:
    """The limit of files: see rule 4 of the module."""
    shutil.copytree(rig.chip_directory, tmp_path / "older")
    rig.store.set_minimum_version(rig.store.load(), version=5)
    assert ChipStore(tmp_path / "older").load().minimum_version == 1
