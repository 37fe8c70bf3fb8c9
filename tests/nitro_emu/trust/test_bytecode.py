"""nitro_emu.trust.bytecode: bytecode of other sources is refused, and Python's own in whatever form is not."""

from __future__ import annotations

import importlib.util
import marshal
import os
import py_compile
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.errors import TrustError
from nitro_emu.trust import bytecode
from nitro_emu.trust.bytecode import check_bytecode, is_same_code
from nitro_emu.trust.measure import image_files, software_root
from tests.patience import PATIENCE_S

SOURCE: Final = '''"""Documentation."""
from os import path as way

def function(first, /, *more, key=1.5, **rest):
    """More."""
    assert first, "gone with -O"
    near = {name: (first, key) for name in more if name in {"a", "b", 3, (4, 5), "\\u00e4\\u20ac", b"bytes"}}
    try:
        return lambda: (near, rest, 1 << 70, -(1 << 40), 2j, None, True, ...)
    except ValueError:
        raise

class Thing:
    name = "name"
'''
EXPECTED: Final = compile(SOURCE, "thing.py", "exec", dont_inherit=True)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "srd").mkdir()
    (tmp_path / "srd" / "thing.py").write_text(SOURCE)
    return tmp_path


def cached(image: Path, *, level: int = 0) -> Path:
    """Return the bytecode's file of the image's only source, made by Python."""
    source = image / "srd" / "thing.py"
    name = Path(importlib.util.cache_from_source(str(source), optimization=str(level or ""))).name
    path = source.parent / "__pycache__" / name
    py_compile.compile(
        str(source),
        cfile=str(path),
        optimize=level,
        doraise=True,
        invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP,
    )
    return path


def check(image: Path) -> None:
    check_bytecode(image, image_files(image))


def change(path: Path) -> None:
    """Change a constant of a file of bytecode, and nothing that Python looks at before it loads it."""
    content = path.read_bytes()
    assert content.count(b"name") > 1
    path.write_bytes(content[:-4].replace(b"Documentation.", b"documentation.") + content[-4:])
    assert path.read_bytes() != content


@pytest.mark.parametrize("level", [0, 1, 2])
def test_bytecode_of_the_source_passes_and_any_other_does_not(image: Path, level: int) -> None:
    check(image)
    path = cached(image, level=level)
    check(image)
    other = compile(SOURCE.replace("Thing", "Other"), str(path), "exec", optimize=level)
    path.write_bytes(path.read_bytes()[:16] + marshal.dumps(other))
    with pytest.raises(TrustError, match=rf"{path.name} is not what thing\.py compiles to; remove the __pycache__"):
        check(image)


def test_python_loads_what_is_refused(image: Path) -> None:
    """The reason for all this: a changed constant runs, while the source is as it was."""
    change(cached(image))
    program = "import sys; sys.path.insert(0, sys.argv[1]); import srd.thing; print(srd.thing.__doc__)"
    argv = [sys.executable, "-I", "-S", "-c", program, str(image)]
    done = subprocess.run(argv, capture_output=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == b"documentation.\n"
    with pytest.raises(TrustError, match="is not what"):
        check(image)


def test_bytecode_that_is_not_loaded_does_not_matter(image: Path) -> None:
    path = cached(image)
    change(path)
    source = image / "srd" / "thing.py"
    with pytest.raises(TrustError):
        check(image)
    changed_at = source.stat().st_mtime
    os.utime(source, (changed_at - 10, changed_at - 10))
    check(image)  # an older source: Python compiles it again
    os.utime(source, (changed_at, changed_at))
    content = path.read_bytes()
    path.write_bytes(b"\0\0\r\n" + content[4:])
    check(image)  # of another version
    path.write_bytes(content[:15])
    check(image)
    path.rename(path.with_name("thing.another-39.pyc"))
    check(image)
    path.with_name("gone" + path.name.removeprefix("thing")).write_bytes(content)
    check(image)


@pytest.mark.parametrize("flags", [1, 3])
def test_bytecode_with_a_hash_is_always_compared(image: Path, flags: int) -> None:
    path = cached(image)
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes([flags, 0, 0, 0]) + bytes(8) + content[16:])
    check(image)
    change(path)
    with pytest.raises(TrustError, match="is not what"):
        check(image)


def test_a_source_that_changes_in_between_and_links_are_refused(image: Path) -> None:
    path = cached(image)
    files = {**image_files(image), "srd/thing.py": bytes(48)}
    with pytest.raises(TrustError, match="was changed while it was measured"):
        check_bytecode(image, files)
    path.rename(image / "elsewhere.pyc")
    path.symlink_to(image / "elsewhere.pyc")
    with pytest.raises(TrustError, match=r"beyond a symbolic link; remove the __pycache__"):
        check(image)


def test_bytecode_of_a_source_that_does_not_compile_is_refused(image: Path) -> None:
    path = cached(image)
    source = image / "srd" / "thing.py"
    status = source.stat()
    source.write_text("(" + SOURCE[1:])
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(TrustError, match=f"{path.name} is not what"):
        check(image)


def test_this_software_s_own_bytecode_passes(tmp_path: Path) -> None:
    """As importing makes it, which depends on what was imported before."""
    root = software_root()
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    program = "import nitro_emu.daemon, nitro_emu.cli.chip"
    subprocess.run([sys.executable, "-c", program], env=environment, cwd=root, timeout=PATIENCE_S, check=True)
    compared = 0
    for path in (tmp_path / root.relative_to("/") / "nitro_emu").rglob("*.pyc"):
        source = root / path.relative_to(tmp_path / root.relative_to("/")).with_name(f"{path.name.split('.')[0]}.py")
        code = compile(source.read_bytes(), "elsewhere", "exec", dont_inherit=True)
        assert is_same_code(path.read_bytes()[16:], expected=marshal.dumps(code)), path
        compared += 1
    assert compared


# -- marshalled code --------------------------------------------------------------------------------------------


def test_other_forms_of_the_same_code_pass() -> None:
    again = compile(SOURCE, "/another/thing.py", "exec", dont_inherit=True)
    held = [again.co_names, again.co_consts]
    forms = {marshal.dumps(again), marshal.dumps(EXPECTED), marshal.dumps(EXPECTED, 2)}
    assert held
    assert len(forms) == 3
    for form in forms:
        assert is_same_code(form, expected=marshal.dumps(EXPECTED))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1 << 70", "1 << 71"),
        ("-(1 << 40)", "(1 << 40)"),
        ("1.5", "2.5"),
        ("1.5", "'1.5'"),
        ("2j", "3j"),
        ("True", "1"),
        ("True", "False"),
        ("...", "None"),
        ('b"bytes"', '"bytes"'),
        ("(4, 5)", "(5, 4)"),
        ('"a", "b", 3', '"a", "b", 4'),
        ("20ac", "20ad"),
        ("key=", "kez="),
        ("key", "kez"),
        ("first, /,", "first,"),
        ("in more", "in rest"),
        ("ValueError", "TypeError_"),
        ("Thing", "thing"),
        ("\n\ndef", "\n\n\ndef"),
    ],
)
def test_any_other_code_is_refused(old: str, new: str) -> None:
    assert old in SOURCE
    other = compile(SOURCE.replace(old, new), "thing.py", "exec", dont_inherit=True)
    for version in (2, 4):
        assert not is_same_code(marshal.dumps(other, version), expected=marshal.dumps(EXPECTED))


def test_values_that_look_alike_are_told_apart() -> None:
    values: list[Any] = ["1", b"1", 1, 1.0, 1 + 0j, 1 << 40, -(1 << 40), True, None, ..., 0.0, -0.0, "", b"", (), ((),)]
    values += [frozenset(), ("1",), ("1", "1"), ("11",), frozenset(["1"]), "\u00e4", "\u00c3\u00a4", b"\xc3\xa4"]
    for first, one in enumerate(values):
        for second, other in enumerate(values):
            for version in (2, 4):
                is_same = is_same_code(marshal.dumps(one, version), expected=marshal.dumps(other))
                assert is_same is (first == second), (one, other)
    assert not is_same_code(b"a\2\0\0\0\xc3\xa4", expected=marshal.dumps("\u00e4"))  # no ASCII


def test_a_flipped_bit_is_refused_unless_it_changes_nothing() -> None:
    content = marshal.dumps(EXPECTED)
    refused = 0
    for position in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            if is_same_code(bytes(changed), expected=content):
                assert_equal(marshal.loads(bytes(changed)), EXPECTED)  # noqa: S302 - it is sound, or this fails
            else:
                refused += 1
    assert refused > len(content) * 7


def assert_equal(one: object, other: object) -> None:
    """Compare code in all but the file's name."""
    assert type(one) is type(other)
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        for name in dir(CodeType):
            if name.startswith("co_") and name not in {"co_filename", "co_consts", "co_lines", "co_positions"}:
                assert getattr(one, name) == getattr(other, name), name
        assert [*one.co_positions()] == [*other.co_positions()]
        for mine, yours in zip(one.co_consts, other.co_consts, strict=True):
            assert_equal(mine, yours)
    else:
        assert one == other


@given(st.binary(max_size=200))
def test_anything_is_refused(data: bytes) -> None:
    assert not is_same_code(data, expected=marshal.dumps(EXPECTED))
    header = marshal.dumps(EXPECTED)[:21]
    assert not is_same_code(header + data, expected=marshal.dumps(EXPECTED))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b")" + b"\1" + b"r\0\0\0\0",
        b"\xa9\1r\0\0\0\0",  # a tuple within itself
        b"r\0\0\0\0",
        b"(\xff\xff\xff\xff",
        b"s\xff\xff\xff\xff",
        b"l\0\0\0\x80",
        b")\1" * 100_000,
        b"\xa9\2Nr\1\0\0\0",
        b"?",
        b"[\0\0\0\0",
    ],
)
def test_malformed_code_is_refused(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode, "_MAX_GROWTH", 1 << 20)
    assert not is_same_code(data, expected=marshal.dumps(EXPECTED))


def test_values_that_double_at_each_step_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode, "_MAX_GROWTH", 1 << 20)
    before = [b"r" + number.to_bytes(4, "little") for number in range(99)]
    doubling = b")\x64" + b"\xa9\2NN" + b"".join(b"\xa9\2" + each + each for each in before)
    assert not is_same_code(doubling, expected=marshal.dumps(EXPECTED))
    assert not is_same_code(doubling.replace(b")\x64", b">\x64\0\0\0"), expected=doubling)
    assert is_same_code(doubling, expected=doubling)


def test_code_that_is_far_longer_is_not_read() -> None:
    expected = marshal.dumps(EXPECTED)
    assert not is_same_code(expected + bytes(8 * len(expected)), expected=expected)
