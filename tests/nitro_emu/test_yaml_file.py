"""nitro_emu.yaml_file: whatever a file contains, there is a mapping or one error."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.errors import ConfigError
from nitro_emu.yaml_file import MAX_FILE_BYTES, mapping_of


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\na: 2", "line 2: a is given twice"),
        (b"a:\n  b: 1\n  b: 2", "line 3: b is given twice"),
        (b"[1]", "a mapping"),
        (b"", "a mapping"),
        (b"a: &a [1, *a]", "line 1: an alias stands within what it is an alias of"),
        (b"a: !!python/object:os.system x", "line 1: the tag .* is not read here"),
        (b"a: [", "not YAML"),
        (b"\xff\xfe\x00", "not YAML"),
        (b"\x00", "not YAML"),
        (b"a: " + b"[" * 5000, "not YAML: nested too deeply"),
        (b"a: " + b"9" * 5000, "line 1: 99999999999999999999... is too long for a number"),
        (b"? [1]\n: 2", "not YAML: found unhashable key"),
        (b"a: " + b"x" * MAX_FILE_BYTES, "larger than 1 MiB"),
    ],
)
def test_mapping_of_bad_content(content: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mapping_of(content, wanted="a mapping")


@given(content=st.binary() | st.text("{}[]:,&*!|>-? \n#'\"ab01").map(str.encode))
def test_mapping_of_anything(content: bytes) -> None:
    with suppress(ConfigError):
        assert isinstance(mapping_of(content, wanted="a mapping"), dict)


def test_mapping_of_has_no_types_of_yaml_1_1() -> None:
    wanted = {"a": {"b": [1, "0x10", "yes", "22:30", "0443", 1.5, True]}}
    assert mapping_of(b"a: {b: [1, 0x10, yes, 22:30, 0443, 1.5, true]}", wanted="") == wanted
