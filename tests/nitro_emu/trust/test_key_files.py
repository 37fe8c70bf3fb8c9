"""nitro_emu.trust.key_files: a private key's file is its user's alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nitro_emu.errors import TrustError
from nitro_emu.trust.key_files import make_key_files, read_private_key, read_public_key


def test_made_files_belong_together(tmp_path: Path) -> None:
    public = make_key_files(tmp_path / "key.pem")
    assert public == tmp_path / "key.pub.pem"
    assert read_private_key(tmp_path / "key.pem").public_key() == read_public_key(public)
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600


@pytest.mark.parametrize("existing", ["key.pem", "key.pub.pem"])
def test_what_exists_is_kept(tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).write_text("mine")
    with pytest.raises(TrustError, match="exists"):
        make_key_files(tmp_path / "key.pem")
    assert [path.name for path in tmp_path.iterdir()] == [existing]


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    make_key_files(tmp_path / "key.pem")
    (tmp_path / "key.pem").chmod(0o640)
    with pytest.raises(TrustError, match=r"others may use it \(mode 640\)"):
        read_private_key(tmp_path / "key.pem")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_secret_of_another_user_is_refused(tmp_path: Path) -> None:
    make_key_files(tmp_path / "key.pem")
    os.chown(tmp_path / "key.pem", 12345, 12345)
    with pytest.raises(TrustError, match="belongs to another user"):
        read_private_key(tmp_path / "key.pem")


def test_the_two_are_not_mixed_up(tmp_path: Path) -> None:
    public = make_key_files(tmp_path / "key.pem")
    with pytest.raises(TrustError, match=r"has a private key; give the public one, key\.pub\.pem"):
        read_public_key(tmp_path / "key.pem")
    public.chmod(0o600)
    with pytest.raises(TrustError, match="no private key"):
        read_private_key(public)


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="cannot be written"):
        make_key_files(tmp_path / "nowhere" / "key.pem")
    with pytest.raises(TrustError, match="cannot be read"):
        read_private_key(tmp_path / "nowhere" / "key.pem")
