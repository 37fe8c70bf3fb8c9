"""`nitro-verify`: AWS's documents and ours, and how it says no."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nitro_emu.cli.verify import cli
from nitro_emu.trust.pki import certificate_der, certificate_pem, private_key_pem
from tests.nitro_emu.trust.samples import AWS_ROOT_FILE, REAL, SELF_SIGNED, Real, authorities, aws_root, signed

Called = Callable[..., subprocess.CompletedProcess[str]]
REAL_WITH_KEY = REAL[2]
AT = "2024-05-07T18:00:00Z"
PCR0 = "4d8ff9d3a23815b17d4a46c648da68e822ec7d32e473e023ba96fb6e388af2d5e0838d174a2d376d3593cc929b3d610e"
OUR_TIME = "2026-03-04T06:00:00+00:00"


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Called:
    def call(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["nitro-verify", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            cli()
        out, err = capsys.readouterr()
        status = caught.value.code
        assert isinstance(status, int)
        return subprocess.CompletedProcess([], status, out, err)

    return call


@pytest.fixture
def ours(tmp_path: Path) -> tuple[Path, Path]:
    """A document of ours and its root."""
    document, root = tmp_path / "document", tmp_path / "root.pem"
    document.write_bytes(signed())
    root.write_bytes(certificate_pem(authorities()[0].certificate))
    return document, root


def debug(real: Real) -> tuple[str, ...]:
    return ("--allow-debug",) if real.debug else ()


@pytest.mark.parametrize("real", REAL, ids=lambda real: real.name)
@pytest.mark.parametrize("root", ["aws", str(AWS_ROOT_FILE)], ids=["aws", "file"])
def test_real_documents(called: Called, real: Real, root: str) -> None:
    done = called(real.path, "--root", root, "--valid-at", real.at.isoformat(), *debug(real))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"module       {real.module_id}\n" in done.stdout
    assert "0 aws.nitro-enclaves" in done.stdout
    assert ("mode         DEBUG" in done.stdout) == real.debug


def test_what_is_printed(called: Called) -> None:
    done = called(REAL_WITH_KEY.path, "--root", "aws", "--valid-at", AT)
    lines = done.stdout.splitlines()
    assert lines[:8] == [
        "verified at  2024-05-07T18:00:00Z",
        "module       i-0eec57d9c38705a57-enc018f25eda1b897b7",
        "made at      2024-05-07T17:43:06Z (1715103786613 ms)",
        "mode         production",
        f"public key   {b'-----BEGIN RSA PUBLIC KEY-----'.hex()}0a4d... (426 bytes)",
        "user data    empty",
        "nonce        empty",
        "root         641a0321a3e244efe456463195d606317ed7cdcc3c1756e09893f3c68f79bb5b",
    ]
    assert lines[9] == f"PCR0   {PCR0}"
    assert lines[12] == "PCR3   zero"
    assert lines[-1].startswith("4 i-0eec57d9c38705a57-enc018f25eda1b897b7.us-east-1.aws")
    assert lines[-1].endswith("2024-05-07T17:43:03Z to 2024-05-07T20:43:06Z")
    assert len(lines) == 8 + 1 + 16 + 1 + 5


def test_json(called: Called) -> None:
    found = json.loads(called(REAL_WITH_KEY.path, "--root", "aws", "--valid-at", AT, "--json").stdout)
    assert found["module_id"] == REAL_WITH_KEY.module_id
    assert found["pcrs"]["0"] == PCR0
    assert found["timestamp_ms"] == 1715103786613
    assert bytes.fromhex(found["public_key"]).startswith(b"-----BEGIN RSA PUBLIC KEY-----")
    assert (found["nonce"], found["user_data"], found["debug"]) == ("", "", False)
    assert found["chain"][0]["name"] == "aws.nitro-enclaves"
    assert len(found["chain"]) == 5


def test_all_forms_of_input(called: Called, tmp_path: Path) -> None:
    raw, options = REAL_WITH_KEY.signed, ("--root", "aws", "--valid-at", AT)
    wrapped = base64.encodebytes(raw).replace(b"\n", b"\r\n")
    expected = called(REAL_WITH_KEY.path, *options).stdout
    for number, data in enumerate(
        (raw, b"\xd2" + raw, wrapped, b" \n" + base64.b64encode(raw) + b"\n", raw.hex().encode())
    ):
        path = tmp_path / str(number)
        path.write_bytes(data)
        assert called(path, *options).stdout == expected
        assert called("-", *options, stdin=data).stdout == expected


def test_base64_with_other_characters_is_refused(called: Called) -> None:
    text = REAL_WITH_KEY.path.read_bytes()
    for data in (text + b"*", b"\xef\xbb\xbf" + text, text[:100] + b"-" + text[100:]):
        done = called("-", "--root", "aws", "--valid-at", AT, stdin=data)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "nitro-verify: -: is no COSE_Sign1 message in CBOR, nor one in hex or base64\n"


def test_expectations_that_are_met(called: Called, ours: tuple[Path, Path], tmp_path: Path) -> None:
    document, root = ours
    (tmp_path / "key").write_bytes(b"public key")
    (tmp_path / "data").write_bytes(b"user data")
    options = ["--root", root, "--valid-at", OUR_TIME, "--pcr", f"0={'01' * 48}", "--pcr", f"15={'10' * 48}"]
    options += ["--nonce", b"nonce".hex().upper(), "--public-key", tmp_path / "key"]
    for data in (b"user data".hex(), f"@{tmp_path / 'data'}"):
        assert called(document, *options, "--user-data", data).returncode == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--valid-at", "2026-03-03"], "not yet at 2026-03-03T00:00:00Z"),
        (["--pcr", f"0={'02' * 48}"], f"PCR0 is {'01' * 48}; {'02' * 48} is expected"),
        (["--nonce", ""], "the nonce is 6e6f6e6365; empty is expected"),
        (["--public-key", str(AWS_ROOT_FILE)], f"the public_key is {b'public key'.hex()}; "),
        (["--user-data", "00"], "the user_data is"),
        (["--root", "aws"], "not that of AWS Nitro Enclaves"),
    ],
)
def test_refusals_are_one_line(called: Called, ours: tuple[Path, Path], options: list[str], reason: str) -> None:
    document, root = ours
    done = called(document, "--root", root, "--valid-at", OUR_TIME, *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"nitro-verify: {document}: ")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_time_is_now_by_default(called: Called) -> None:
    done = called(REAL_WITH_KEY.path, "--root", "aws")
    assert done.returncode == 1
    assert "no longer at" in done.stderr


def test_debug_documents_are_refused(called: Called) -> None:
    done = called(REAL[1].path, "--root", "aws", "--valid-at", REAL[1].at.isoformat())
    assert done.returncode == 1
    assert "PCR0, PCR1 and PCR2 are zero" in done.stderr


@pytest.mark.parametrize("data", [b"", b"\x84", b"hEShAT", bytes(1 << 20)])
def test_other_files_are_refused(called: Called, data: bytes) -> None:
    done = called("-", "--root", AWS_ROOT_FILE, stdin=data)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"nitro-verify: -: [^\n]+\n", done.stderr)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--pcr", "0"], "--pcr 0: must be N=HEX"),
        (["--pcr", "32=00"], "--pcr 32=00: must be N=HEX, with N from 0 to 31"),
        (["--pcr", "x=00"], "--pcr x=00: must be N=HEX"),
        (["--pcr", "0=xx"], "--pcr 0: 'xx' is not hexadecimal"),
        (["--pcr", "0=00"], "--pcr 0: has 1 bytes; a PCR has 48"),
        (["--pcr", f"0={'00' * 48}", "--pcr", f"0={'01' * 48}"], "--pcr 0: is given twice, with two values"),
        (["--nonce", "0"], "Invalid value for '--nonce': '0' is not hexadecimal"),
        (["--user-data", "text"], "Invalid value for '--user-data': 'text' is not hexadecimal"),
        (["--user-data", "@/nowhere"], "Invalid value for '--user-data': /nowhere cannot be read: No such file"),
        (["--public-key", "/nowhere"], "--public-key: /nowhere: cannot be read: No such file or directory"),
        (["--valid-at", "yesterday"], "--valid-at: 'yesterday' is no time; write it as 2024-05-07T18:00:00Z"),
        (["--valid-at", "0001-01-01T00:00:00+23:00"], "--valid-at: '0001-01-01T00:00:00+23:00' is no time"),
        (["--root", "/nowhere"], "--root: /nowhere: cannot be read: No such file or directory"),
        (["--root", "/"], "--root: /: cannot be read: Is a directory"),
        (["--root", str(SELF_SIGNED)], "is no certificate that can be read"),
        (["--unknown"], "No such option"),
    ],
)
def test_wrong_usage(called: Called, ours: tuple[Path, Path], options: list[str], reason: str) -> None:
    document, root = ours
    done = called(document, "--root", root, "--valid-at", OUR_TIME, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_wrong_usage_without_files(called: Called, tmp_path: Path) -> None:
    assert called().returncode == 2
    done = called(REAL_WITH_KEY.path)
    assert done.returncode == 2
    assert "--root" in done.stderr
    done = called("/nowhere", "--root", "aws")
    assert done.returncode == 2
    assert "DOC: /nowhere: cannot be read" in done.stderr
    (tmp_path / "big").write_bytes(bytes((1 << 20) + 1))
    done = called(tmp_path / "big", "--root", "aws")
    assert done.returncode == 2
    assert "has more than 1048576 bytes" in done.stderr
    key = tmp_path / "key.pem"
    key.write_bytes(private_key_pem(authorities()[0].private_key))
    assert called(REAL_WITH_KEY.path, "--root", key).returncode == 2


def test_root_may_be_in_der(called: Called, tmp_path: Path) -> None:
    root = tmp_path / "root.der"
    root.write_bytes(certificate_der(aws_root()))
    assert called(REAL_WITH_KEY.path, "--root", root, "--valid-at", AT).returncode == 0


def test_document_cannot_write_to_the_terminal(called: Called, ours: tuple[Path, Path]) -> None:
    document, root = ours
    document.write_bytes(signed(module_id="\x1b[2J\nnonce  00"))
    done = called(document, "--root", root, "--valid-at", OUR_TIME)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("nonce")] == [f"nonce        {b'nonce'.hex()}"]


@pytest.mark.installed  # has the version
def test_help_and_version(called: Called) -> None:
    assert "--allow-debug" in called("--help").stdout
    assert called("--version").stdout.startswith("nitro-verify ")
