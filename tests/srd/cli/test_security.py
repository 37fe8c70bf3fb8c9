"""`srd keygen`, and the options for encryption of `srd send` and `srd recv`, as processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from srd.secure.keys import fingerprint, load, parse_public
from srd.secure.noise import public_bytes
from tests.srd.cli.processes import Called, Process, assert_fails, command, names, receiver, receives, srd
from tests.srd.secure.test_certificates import key_pem, pem, written
from tests.srd.test_endpoint_security import cert

SEED = 72


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without keys."""
    monkeypatch.setenv("SRD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def arrived(output: Path, file: Path) -> bool:
    return (output / file.name).exists() and (output / file.name).read_bytes() == file.read_bytes()


# -- keygen ----------------------------------------------------------------------------------------------------------


def test_keygen__makes_this_users_key_and_shows_it_afterwards(home: Path, called: Called) -> None:
    first, again = called("keygen"), called("keygen")
    assert first.returncode == again.returncode == 0
    assert first.stdout == again.stdout
    public, shown = first.stdout.splitlines()
    key = public_bytes(load(home / "key"))
    assert parse_public(public) == key
    assert shown == f"fingerprint {fingerprint(key)}, key in {home / 'key'}"
    assert (home / "key").stat().st_mode & 0o777 == 0o600


def test_keygen__in_a_file(tmp_path: Path, home: Path, called: Called) -> None:
    result = called("keygen", str(tmp_path / "mine"))
    assert parse_public(result.stdout.splitlines()[0]) == public_bytes(load(tmp_path / "mine"))
    assert not home.exists()


def test_keygen__of_a_symmetric_key_that_is_not_printed(tmp_path: Path, called: Called) -> None:
    path = tmp_path / "psk"
    result = called("keygen", "--psk", str(path))
    assert result.returncode == 0
    assert path.read_text().strip() not in result.stdout + result.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    assert_fails(called("keygen", "--psk", str(path)), status=1, error=f"{path}: exists; remove it first")
    assert_fails(called("keygen", "--psk"), status=2, error="--psk needs a FILE")


def test_keygen__a_key_that_others_may_read_bad_flow(tmp_path: Path, called: Called) -> None:
    called("keygen", str(tmp_path / "key"))
    (tmp_path / "key").chmod(0o644)
    assert_fails(called("keygen", str(tmp_path / "key")), status=1, error="others may read it (mode 644)")


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--plain", "--psk-file", "x"], "--plain and --psk-file exclude each other"),
        (["--plain", "--known-hosts", "x"], "--plain and --known-hosts exclude each other"),
        (["--cert", "x"], "--cert and --ca belong together"),
        (["--ca", "x"], "--cert and --ca belong together"),
        (["--psk-file", "/nonexistent"], "/nonexistent: cannot be read: No such file"),
        (["--cert", "/nonexistent", "--ca", "x"], "/nonexistent: cannot be read: No such file"),
        (["--devmem"], "--devmem: sends the pages of a file as they are, which cannot be encrypted; add --plain"),
    ],
)
def test_send__options_bad_flow(file: Path, called: Called, options: list[str], error: str) -> None:
    assert_fails(called("send", *options, str(file), "127.0.0.1:1"), status=2, error=error)


def test_recv__options_bad_flow(output: Path, called: Called, tmp_path: Path) -> None:
    listen = receives(output)
    (tmp_path / "keys").write_text("nonsense\n")
    for options, error in (
        (["--plain", "--authorized-keys", "x"], "--plain and --authorized-keys exclude each other"),
        (["--authorized-keys", str(tmp_path / "keys")], "keys, line 1: is no public key"),
    ):
        assert_fails(called(*listen, *options), status=2, error=error)


@pytest.mark.parametrize("target", ["127.0.0.1:1#", "127.0.0.1:1#short", "127.0.0.1:1#" + "!" * 43])
def test_send__an_invalid_fingerprint_bad_flow(file: Path, called: Called, target: str) -> None:
    assert_fails(called("send", str(file), target), status=2, error="after # comes a fingerprint of 43 characters")


def test_send__a_fingerprint_without_keys_bad_flow(file: Path, called: Called) -> None:
    result = called("send", "--plain", str(file), "127.0.0.1:1#" + "x" * 43)
    assert_fails(result, status=2, error="a fingerprint is of a public key; leave out")


# -- transfers -------------------------------------------------------------------------------------------------------


def test_recv__prints_what_send_takes(home: Path, file: Path, output: Path) -> None:
    argv = command(*receives(output, "--once"))
    with Process(argv) as process:
        process.stderr.next()
        line = process.stderr.next()
        assert line is not None
        assert line.startswith("srd recv: send with: srd send FILE 127.0.0.1:")
        code = line.split()[-1]
        result = srd("send", str(file), code)
        assert result.returncode == 0, result.stderr
        assert process.wait() == 0
        assert fingerprint(public_bytes(load(home / "key"))) == code.partition("#")[2]
    assert arrived(output, file)
    assert not (home / "known_hosts").exists()


def test_send__trusts_a_new_receiver_once_and_says_so(
    home: Path, file: Path, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver(output) as (process, target):
        monkeypatch.setenv("SRD_HOME", str(tmp_path / "other"))
        first = srd("send", str(file), target)
        again = srd("send", str(file), target)
        assert process.popen.poll() is None
    assert first.returncode == 0, first.stderr
    shown = fingerprint(public_bytes(load(home / "key")))
    assert f"{target} is new: its key has the fingerprint {shown}, and is trusted from now on" in first.stderr
    assert "is new" not in again.stderr
    assert (tmp_path / "other" / "known_hosts").read_text().startswith(f"{target} srd-x25519 ")


def test_psk_file__at_both_ends(file: Path, output: Path, tmp_path: Path) -> None:
    psk = tmp_path / "psk"
    assert srd("keygen", "--psk", str(psk)).returncode == 0
    with receiver(output, "--psk-file", str(psk)) as (_, target):
        assert srd("send", "--psk-file", str(psk), str(file), target).returncode == 0
        written(tmp_path / "wrong", "correct horse battery")
        result = srd("send", "--retry-for", "0", "--psk-file", str(tmp_path / "wrong"), str(file), target)
        assert_fails(result, status=1, error="not authentic: is the symmetric key")
        result = srd("send", "--retry-for", "0", str(file), target)
        assert_fails(result, status=1, error="the other end wants a symmetric key (psk)")
        result = srd("send", "--retry-for", "0", "--plain", str(file), target)
        assert_fails(result, status=1, error="the other end wants a symmetric key (psk)")
    assert arrived(output, file)


def test_plain__only_if_both_ends_ask_for_it(file: Path, output: Path) -> None:
    with receiver(output, "--plain") as (_, target):
        result = srd("send", "--retry-for", "0", str(file), target)
        assert_fails(result, status=1, error="the other end speaks plain text only")
        assert names(output) == []
        assert srd("send", "--plain", str(file), target).returncode == 0
    assert arrived(output, file)


def test_authorized_keys__refuse_others(file: Path, output: Path, tmp_path: Path, home: Path) -> None:
    mine = srd("keygen").stdout.splitlines()[0]
    (tmp_path / "authorized").write_text(f"{mine} me\n")
    with receiver(output, "--authorized-keys", str(tmp_path / "authorized")) as (_, target):
        assert srd("send", str(file), target).returncode == 0
        (home / "key").unlink()
        result = srd("send", "--retry-for", "0", "--known-hosts", str(tmp_path / "k"), str(file), target)
        assert_fails(result, status=1, error="does not accept this end's key")
    assert arrived(output, file)


def test_cert__at_both_ends(file: Path, output: Path, tmp_path: Path) -> None:
    both, ca = cert("b"), tmp_path / "ca.pem"
    ca.write_bytes(both.authorities.certificates[0].public_bytes(Encoding.PEM))
    mine = written(tmp_path / "b.pem", pem(both.certificate) + key_pem("b"))
    with receiver(output, "--cert", str(mine), "--ca", str(ca)) as (_, target):
        result = srd("send", "--cert", str(mine), "--ca", str(ca), str(file), target)
        assert result.returncode == 0, result.stderr
        evil = cert("c", issuer="evil")
        theirs = written(tmp_path / "c.pem", pem(evil.certificate) + key_pem("c"))
        result = srd("send", "--retry-for", "0", "--cert", str(theirs), "--ca", str(ca), str(file), target)
        assert_fails(result, status=1, error="does not accept this end's key or certificate")
    assert arrived(output, file)
