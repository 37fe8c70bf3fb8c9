"""nitro_emu.trust.measure: what the measurement of the software covers, and what it refuses to read."""

from __future__ import annotations

import hashlib
import os
import socket
from importlib.metadata import distributions
from pathlib import Path

import pytest

from nitro_emu.errors import TrustError
from nitro_emu.trust import measure
from nitro_emu.trust.measure import (
    ZERO,
    environment,
    extend,
    file_sha384,
    image_digest,
    image_files,
    image_sha384,
    read_file,
)

FILES = {"srd/a.py": "1", "srd/sub/b.py": "2", "nitro_emu/c.py": "3", "devmem/d.py": "4", "netns/e.py": "5"}


def sources_in(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_image_changes_with_content_and_names_only(tmp_path: Path) -> None:
    measured = image_sha384(sources_in(tmp_path / "one", FILES))
    more = {"tests/e.py": "5", "srd/PROTOCOL.md": "6", "srd/__pycache__/a.cpython-311.pyc": "7"}
    assert measured == image_sha384(sources_in(tmp_path / "same", {**FILES, **more}))
    others = (
        {**FILES, "srd/a.py": "0"},
        {**FILES, "srd/z.py": ""},
        {"srd/aa.py" if name == "srd/a.py" else name: content for name, content in FILES.items()},
        {**FILES, "srd/a.py": "12", "srd/sub/b.py": ""},
        {**FILES, "srd/a.cpython-311-x86_64-linux-gnu.so": "compiled"},
        {**FILES, "0123__mypyc.cpython-311-x86_64-linux-gnu.so": "the code of compiled modules"},
        {**FILES, "srd/a/__init__.pyc": "bytecode that comes before a.py"},
    )
    found = {image_sha384(sources_in(tmp_path / str(number), other)) for number, other in enumerate(others)}
    assert len(found - {measured}) == len(others)


def test_image_of_this_software() -> None:
    assert len(image_sha384()) == 48
    assert image_sha384() == image_sha384()
    assert "nitro_emu/trust/measure.py" in image_files(measure.software_root())


def test_image_lists_a_hash_of_each_file(tmp_path: Path) -> None:
    files = image_files(sources_in(tmp_path, FILES))
    assert list(files) == sorted(FILES)
    assert files["srd/a.py"] == hashlib.sha384(b"1").digest()
    assert image_digest(files) == image_digest(dict(reversed(files.items()))) == image_sha384(tmp_path)


def test_an_image_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="has no files"):
        image_files(tmp_path)
    with pytest.raises(TrustError, match="cannot be read: No such file"):
        image_files(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["link.py", "package", "dangling.so"])
def test_a_link_that_leads_to_code_is_refused(tmp_path: Path, name: str) -> None:
    root = sources_in(tmp_path / "image", FILES)
    outside = sources_in(tmp_path / "outside", {"x.py": "", "directory/y.py": ""})
    target = {"link.py": outside / "x.py", "package": outside / "directory", "dangling.so": outside / "missing"}
    (root / "srd" / name).symlink_to(target[name])
    with pytest.raises(TrustError, match=f"srd/{name} is a symbolic link"):
        image_files(root)


def test_a_package_that_is_a_link_is_refused(tmp_path: Path) -> None:
    root = sources_in(tmp_path / "image", {"srd/a.py": ""})
    (root / "devmem").symlink_to(root / "srd")
    with pytest.raises(TrustError, match="cannot be read"):
        image_files(root)


def test_a_link_to_what_is_no_code_does_not_matter(tmp_path: Path) -> None:
    root = sources_in(tmp_path, FILES)
    (root / "srd" / "notes.md").symlink_to("/etc/hostname")
    assert set(image_files(root)) == set(FILES)


def test_a_fifo_and_a_socket_do_not_block(tmp_path: Path) -> None:
    root = sources_in(tmp_path, FILES)
    os.mkfifo(root / "srd" / "fifo.py")
    with pytest.raises(TrustError, match=r"srd/fifo\.py is no regular file"):
        image_files(root)
    (root / "srd" / "fifo.py").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "srd" / "s.py"))
        with pytest.raises(TrustError, match="cannot be read"):
            image_files(root)


def test_a_directory_with_the_name_of_code_is_no_file(tmp_path: Path) -> None:
    root = sources_in(tmp_path, {**FILES, "srd/odd.py/e.py": ""})
    assert set(image_files(root)) == {*FILES, "srd/odd.py/e.py"}


@pytest.mark.parametrize(
    ("bound", "value", "reason"),
    [
        ("MAX_FILES", 3, "more than 3 files of code"),
        ("MAX_ENTRIES", 5, "more than 5 files"),
        ("MAX_FILE_BYTES", 0, "makes the image larger"),
        ("MAX_IMAGE_BYTES", 3, "makes the image larger"),
        ("MAX_DEPTH", 1, "deeper than 1"),
    ],
)
def test_an_image_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int, reason: str
) -> None:
    root = sources_in(tmp_path, {**FILES, "srd/sub/subsub/deep.py": ""})
    image_files(root)
    monkeypatch.setattr(measure, bound, value)
    with pytest.raises(TrustError, match=reason):
        image_files(root)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    root = sources_in(tmp_path, {**FILES, "srd/sub/subsub/deep.py": "", "srd/other/f.py": ""})
    os.mkfifo(root / "srd" / "other" / "fifo.py")
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(TrustError):
        image_files(root)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_name_that_is_no_text_is_measured(tmp_path: Path) -> None:
    root = sources_in(tmp_path, FILES)
    measured = image_sha384(root)
    (root / "srd" / os.fsdecode(b"\xff.py")).write_text("")
    assert image_sha384(root) != measured


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert file_sha384(path) == hashlib.sha384(b"content").digest()
    assert read_file(path, max_bytes=7) == b"content"
    with pytest.raises(TrustError, match="more than 6 bytes"):
        read_file(path, max_bytes=6)
    with pytest.raises(TrustError, match="more than 1048576 bytes"):
        read_file(Path("/proc/self/exe"), max_bytes=1 << 20)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "/dev/zero", "."):
        with pytest.raises(TrustError, match="is no regular file"):
            file_sha384(tmp_path / name)
    for name in ("missing", "null\0byte"):
        with pytest.raises(TrustError, match="cannot be read"):
            file_sha384(tmp_path / name)


def test_environment_is_interpreter_and_distributions() -> None:
    found = environment()
    assert found == environment()
    count = len({(item.name.lower().replace("_", "-").replace(".", "-"), item.version) for item in distributions()})
    assert found.description.startswith("cpython 3.")
    assert found.description.endswith(f"{count} distributions")
    assert len(found.digest) == 48


def test_environment_changes_with_a_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = environment().digest
    metadata = tmp_path / "strange-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    one = environment().digest
    metadata.write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.1\n")
    assert len({before, one, environment().digest}) == 3


def test_extend() -> None:
    once = extend(ZERO, b"a" * 48)
    assert once == hashlib.sha384(bytes(48) + b"a" * 48).digest()
    assert extend(once, b"b" * 48) != extend(extend(ZERO, b"b" * 48), b"a" * 48)
