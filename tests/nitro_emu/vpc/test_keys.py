"""nitro_emu.vpc.keys: the control plane's key, and files that hold none."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, SECP384R1, generate_private_key

from nitro_emu.errors import VpcError
from nitro_emu.trust.pki import private_key_pem
from nitro_emu.vpc.keys import make_key, public_path, read_private_key, read_public_key


def test_key_is_made_with_its_public_one(tmp_path: Path) -> None:
    path = tmp_path / "control.pem"
    public = make_key(path)
    assert public == public_path(path) == tmp_path / "control.pub.pem"
    assert (path.stat().st_mode & 0o777, public.stat().st_mode & 0o077) == (0o600, 0o044)
    assert read_private_key(path).public_key() == read_public_key(public)
    assert isinstance(read_private_key(path).curve, SECP384R1)


def test_key_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "control.pem"
    make_key(path)
    content = path.read_bytes()
    with pytest.raises(VpcError, match=r"control.pem: exists; remove it first, or give another name"):
        make_key(path)
    path.rename(tmp_path / "other")
    with pytest.raises(VpcError, match=r"control.pub.pem: exists"):
        make_key(path)
    assert not path.exists()
    assert (tmp_path / "other").read_bytes() == content


def test_directory_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(VpcError, match="cannot be written: No such file or directory"):
        make_key(tmp_path / "none" / "control.pem")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o610])
def test_private_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "control.pem"
    make_key(path)
    path.chmod(mode)
    with pytest.raises(VpcError, match=f"others may read or write it \\(mode {mode:o}\\); run: chmod go-rwx {path}"):
        read_private_key(path)


def test_files_that_hold_no_key(tmp_path: Path) -> None:
    path = tmp_path / "control.pem"
    public = make_key(path)
    public.chmod(0o600)
    with pytest.raises(VpcError, match="has no private key in PEM"):
        read_private_key(public)
    with pytest.raises(VpcError, match="has no public key in PEM"):
        read_public_key(path)
    for read in (read_private_key, read_public_key):
        with pytest.raises(VpcError, match="cannot be read: No such file or directory"):
            read(tmp_path / "none.pem")
    path.write_bytes(private_key_pem(generate_private_key(SECP256R1())))
    with pytest.raises(VpcError, match="P-384"):
        read_private_key(path)
