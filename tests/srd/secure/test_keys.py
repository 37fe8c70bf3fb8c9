"""srd.secure.keys and srd.secure.known_hosts: files with keys."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from srd.proto.base.errors import UsageError
from srd.secure import keys
from srd.secure.config import Keys, Psk
from srd.secure.keys import (
    create,
    create_psk,
    directory,
    fingerprint,
    load,
    parse_public,
    psk_of,
    public_text,
    read_authorized,
    read_psk,
    user_key,
)
from srd.secure.known_hosts import KnownHosts

ONE, OTHER, OWN = bytes(range(32)), bytes(range(1, 33)), bytes(range(2, 34))


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def secret(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


# -- private keys ----------------------------------------------------------------------------------------------------


def test_create__a_file_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "key"
    made = create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert load(path).private_bytes_raw() == made.private_bytes_raw()
    assert names(path.parent) == ["key"], "no temporary file is left"


def test_create__does_not_overwrite_bad_flow(tmp_path: Path) -> None:
    path = secret(tmp_path / "key", "precious")
    for make in (create, create_psk):
        with pytest.raises(UsageError, match="exists; remove it first"):
            make(path)
    assert path.read_text() == "precious"
    assert names(tmp_path) == ["key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o700 | 0o001])
@pytest.mark.parametrize("read", [load, read_psk])
def test_read__a_file_that_others_may_read_bad_flow(tmp_path: Path, mode: int, read: Callable[[Path], object]) -> None:
    path = tmp_path / "key"
    create(path)
    path.chmod(mode)
    with pytest.raises(UsageError, match=rf"others may read it \(mode {mode:o}\); run: chmod go-rwx {path}"):
        read(path)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "has no private key; make one with: srd keygen"),
        (b"srd-x25519-private", "has no private key"),
        (b"srd-x25519-private AAAA", "has no key of 32 bytes in base64"),
        (b"srd-x25519-private !!!!", "has no key of 32 bytes in base64"),
        (b"\xff\xfe", "is no text"),
    ],
)
def test_load__bad_flow(tmp_path: Path, content: bytes, error: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UsageError, match=error):
        load(path)


def test_load__missing_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load(tmp_path / "key")


def test_user_key__is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRD_HOME", str(tmp_path / "home"))
    assert user_key().private_bytes_raw() == user_key().private_bytes_raw()


@pytest.mark.sources  # replaces a function
def test_user_key__two_processes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one's file appears after the look for it."""
    monkeypatch.setenv("SRD_HOME", str(tmp_path))
    theirs = X25519PrivateKey.generate()
    text = base64.b64encode(theirs.private_bytes_raw()).decode()
    real = keys.create

    def late(path: Path) -> X25519PrivateKey:
        secret(path, f"srd-x25519-private {text}\n")
        return real(path)

    monkeypatch.setattr(keys, "create", late)
    assert user_key().private_bytes_raw() == theirs.private_bytes_raw()


def test_user_key__nowhere_to_write_bad_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SRD_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot be written: .*; set SRD_HOME to another directory"):
        user_key()


def test_directory__of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SRD_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config")
    assert directory() == Path("/config/srd")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/u")
    assert directory() == Path("/home/u/.config/srd")


# -- public and symmetric keys ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "ssh-ed25519 AAAA", "srd-x25519", "srd-x25519 AAAA"])
def test_parse_public__bad_flow(text: str) -> None:
    with pytest.raises(UsageError, match="see srd keygen"):
        parse_public(text)


def test_read_authorized__skips_comments_and_empty_lines(tmp_path: Path) -> None:
    path = tmp_path / "authorized"
    path.write_text(f"# friends\n\n{public_text(ONE)} alice\n  {public_text(OTHER)}\n")
    assert read_authorized(path) == {ONE, OTHER}
    path.write_text("nonsense\n")
    with pytest.raises(UsageError, match=rf"{path}, line 1: is no public key"):
        read_authorized(path)
    with pytest.raises(UsageError, match="no such file"):
        read_authorized(tmp_path / "gone")
    with pytest.raises(UsageError, match="cannot be read"):
        read_authorized(tmp_path)


def test_read_authorized__a_private_key_is_not_quoted_bad_flow(tmp_path: Path) -> None:
    path = tmp_path / "key"
    create(path)
    with pytest.raises(UsageError, match=rf"{path}, line 1: is a private key, not a public one") as caught:
        read_authorized(path)
    assert path.read_text().split()[1][:8] not in str(caught.value)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_read__a_file_that_others_may_write_bad_flow(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_text(f"h:1 {public_text(ONE)}\n")
    path.chmod(mode)
    for read in (lambda: read_authorized(path), lambda: KnownHosts(path, own_key=OWN).check("h:1", ONE)):
        with pytest.raises(UsageError, match=rf"others may write to it \(mode {mode:o}\)"):
            read()


def test_read__a_file_of_another_user_bad_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = secret(tmp_path / "psk", ONE.hex())
    uid = os.geteuid()
    os.chown(path, uid or 1, -1)
    monkeypatch.setattr(os, "geteuid", lambda: (uid or 1) + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        read_psk(path)


@pytest.mark.parametrize("text", [ONE.hex(), base64.b64encode(ONE).decode(), ONE.hex() + "\n"])
def test_read_psk__of_32_bytes(tmp_path: Path, text: str) -> None:
    assert read_psk(secret(tmp_path / "psk", text)) == ONE


def test_psk_of__a_passphrase(tmp_path: Path) -> None:
    """RFC 7914's function with the parameters of the documentation, by OpenSSL; both ends compute the same."""
    expected = hashlib.scrypt(
        b"correct horse battery", salt=b"open-srd psk v1", n=1 << 17, r=8, p=1, maxmem=1 << 28, dklen=32
    )
    assert psk_of("correct horse battery") == expected
    assert read_psk(secret(tmp_path / "psk", "correct horse battery\n")) == expected
    with pytest.raises(UsageError, match="less than 12 characters is guessed"):
        psk_of("short")


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33)])
def test_config__a_key_of_the_wrong_length_bad_flow(key: bytes) -> None:
    with pytest.raises(UsageError, match=f"^key: {len(key)} bytes are no symmetric key"):
        Psk(key)
    with pytest.raises(UsageError, match=f"^psk: {len(key)} bytes are no symmetric key"):
        Keys(psk=key)


def test_repr__has_no_secrets() -> None:
    private = X25519PrivateKey.generate()
    for config in (Psk(ONE), Keys(private, psk=ONE, authorized=frozenset((ONE,)))):
        assert ONE.hex() not in repr(config)
        assert repr(ONE) not in repr(config)
        assert repr(private.private_bytes_raw()) not in repr(config)


# -- long files ------------------------------------------------------------------------------------------------------


def many(line: str, *, size_bytes: int, last: str) -> str:
    """Return lines up to a line's end at `size_bytes`, as a comment fills what is left, and the last line behind."""
    text = line * ((size_bytes - 200) // len(line))
    return f"{text}#{'-' * (size_bytes - len(text) - 2)}\n{last}\n"


def test_read__what_lies_behind_a_mebibyte_counts(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(many(f"other:1 {public_text(OTHER)}\n", size_bytes=1 << 20, last=f"h:1 {public_text(ONE)}"))
    reason = KnownHosts(path, own_key=OWN).check("h:1", OTHER)
    assert reason is not None
    assert reason.startswith("has another key than before")
    path.write_text(many(f"{public_text(OTHER)}\n", size_bytes=1 << 20, last=public_text(ONE)))
    assert read_authorized(path) == {ONE, OTHER}


READERS: dict[str, Callable[[Path], object]] = {
    "authorized": read_authorized,
    "known hosts": lambda path: KnownHosts(path, own_key=OWN).check("h:1", ONE),
    "private key": load,
    "psk": read_psk,
}


@pytest.mark.sources  # replaces a constant
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_read__a_file_that_is_too_long_is_never_read_in_part_bad_flow(
    tmp_path: Path, read: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut is at a line's end."""
    monkeypatch.setattr(keys, "MAX_FILE_BYTES", 2 << 20)
    path = secret(tmp_path / "file", many("# comment\n", size_bytes=2 << 20, last="#"))
    with pytest.raises(UsageError, match=rf"{path}: is longer than 2 MiB; divide it, or name another file"):
        read(path)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_read__a_device_without_an_end_bad_flow(read: Callable[[Path], object]) -> None:
    with pytest.raises(UsageError, match="/dev/zero: is longer than 16 MiB"):
        read(Path("/dev/zero"))


# -- known hosts -----------------------------------------------------------------------------------------------------


def test_known_hosts__trusts_the_first_key_of_each_host(tmp_path: Path) -> None:
    path = tmp_path / "new" / "known_hosts"
    hosts = KnownHosts(path, own_key=OWN)
    assert hosts.check("h:1", ONE) is None
    assert hosts.add("h:1", ONE)
    assert not hosts.add("h:1", ONE)
    assert hosts.check("h:1", ONE) is None
    reason = hosts.check("h:1", OTHER)
    assert reason is not None
    assert reason.startswith(f"has another key than before ({fingerprint(OTHER)}, not {fingerprint(ONE)})")
    assert str(path) in reason
    assert hosts.check("h:2", OTHER) is None
    assert KnownHosts(path, own_key=OWN).check("h:1", OTHER) is not None, "it is in the file"
    assert path.stat().st_mode & 0o777 == 0o600


def test_known_hosts__this_users_own_key_is_accepted_and_not_recorded(tmp_path: Path) -> None:
    hosts = KnownHosts(tmp_path / "known_hosts", own_key=OWN)
    assert hosts.check("h:1", OWN) is None
    assert not hosts.add("h:1", OWN)
    hosts.add("h:1", ONE)
    assert hosts.check("h:1", OWN) is not None, "another key is known: somebody may send this user back to itself"


def test_known_hosts__a_second_first_contact_with_another_key_bad_flow(tmp_path: Path) -> None:
    """Both have passed the check before either was added."""
    hosts = KnownHosts(tmp_path / "known_hosts", own_key=OWN)
    assert hosts.check("h:1", ONE) is hosts.check("h:1", OTHER) is None
    assert hosts.add("h:1", ONE)
    with pytest.raises(UsageError, match=r"^h:1: has another key than before"):
        hosts.add("h:1", OTHER)
    assert hosts.check("h:1", ONE) is None


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("host.example:1", "HOST.Example.:1"),
        ("Host.example.:1", "host.example:1"),
        ("[2001:db8::1]:1", "[2001:DB8:0:0::1]:1"),
        ("[FE80::1%eth0]:1", "[fe80::1%eth0]:1"),
        ("127.0.0.1:1", "127.0.0.1:1"),
    ],
)
def test_known_hosts__spellings_of_one_host(tmp_path: Path, written: str, asked: str) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"# a comment\n\n{written}\t  {public_text(ONE)}\n")
    hosts = KnownHosts(path, own_key=OWN)
    assert hosts.check(asked, OTHER) is not None
    assert not hosts.add(asked, ONE)
    other = KnownHosts(tmp_path / "other", own_key=OWN)
    other.add(asked, ONE)
    assert other.check(written, OTHER) is not None


def test_known_hosts__another_process_adds_the_host_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    one, other = (KnownHosts(path, own_key=OWN) for _ in range(2))
    assert one.add("h:1", ONE)
    assert not other.add("h:1", ONE)
    assert path.read_text().count("h:1 ") == 1


def test_known_hosts__damaged_bad_flow(tmp_path: Path) -> None:
    """A line that cannot be read may be that of the host, in whatever form."""
    path = tmp_path / "known_hosts"
    path.write_text(f"g:1 {public_text(ONE)}\nh:1 nonsense\n")
    with pytest.raises(UsageError, match=rf"{path}, line 2: is no public key.*; repair it, or remove it"):
        KnownHosts(path, own_key=OWN).check("h:2", ONE)
    path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="is no text; repair it, or name another file"):
        KnownHosts(path, own_key=OWN).check("h:1", ONE)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be read: Not a directory; name another file"):
        KnownHosts(tmp_path / "file" / "known_hosts", own_key=OWN).add("h:1", ONE)


def test_home__of_a_test_run_is_not_the_users() -> None:
    assert Path(os.environ["SRD_HOME"]).is_relative_to(tempfile.gettempdir())
