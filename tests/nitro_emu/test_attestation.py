"""nitro_emu.attestation: what the measurement of the software covers."""

from __future__ import annotations

from pathlib import Path

from nitro_emu.attestation import image_sha384


def sources_in(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_image_changes_with_content_and_names_only(tmp_path: Path) -> None:
    files = {"srd/a.py": "1", "srd/sub/b.py": "2", "nitro_emu/c.py": "3", "devmem/d.py": "4"}
    measured = image_sha384(sources_in(tmp_path / "one", files))
    assert measured == image_sha384(sources_in(tmp_path / "same", {**files, "netns/e.py": "5", "srd/PROTOCOL.md": "6"}))
    others = (
        {**files, "srd/a.py": "0"},
        {**files, "srd/z.py": ""},
        {"srd/aa.py": "1", "srd/sub/b.py": "2", "nitro_emu/c.py": "3", "devmem/d.py": "4"},
        {**files, "srd/a.py": "12", "srd/sub/b.py": ""},
    )
    found = {image_sha384(sources_in(tmp_path / str(number), other)) for number, other in enumerate(others)}
    assert len(found - {measured}) == len(others)


def test_image_of_this_software() -> None:
    assert len(image_sha384()) == 96
    assert image_sha384() == image_sha384()
