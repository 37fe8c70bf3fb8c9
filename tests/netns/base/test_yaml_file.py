"""netns.base.yaml_file: rules of every YAML file of this project."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, field_validator

import netns.base.yaml_file
from netns.base.yaml_file import MAX_FILE_BYTES, load_mapping, mapping_of, validated
from netns.errors import JobError

LAUGHS = b"a0: &a0 [x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 10)
)
MERGES = b"a0: &a0 {x: 1}\n" + b"".join(
    b"a%d: &a%d {<<: [%s]}\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 6)) for n in range(1, 10)
)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 1


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    count: int = 1
    name: str = ""
    for_: str = Field(default="", alias="for")
    parts: list[_Part] | None = None
    by_name: dict[str, Annotated[list[_Part], Field(max_length=2)]] = {}

    @field_validator("count")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd")
        return value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\na: 2", "line 2: a is given twice"),
        (b"[1]", "wants a mapping"),
        (b"\xff\xfe\x00", "not YAML"),
        (b"a: [", "line 1: not YAML"),
        (b"#" * (MAX_FILE_BYTES + 1), "larger than 4 MiB"),
        (b"a: !!int x", "line 1: the tag tag:yaml.org,2002:int is not read here; leave it out, and quote a text"),
        (b"a: 1\nb: " + b"9" * 30, "line 2: 9{30} is no number of 64 bits; give a smaller one, or quote a text"),
        (b"a: " + b"9" * 5000, r"line 1: 9{20}\.\.\. is too long for a number; quote a text"),
        (b'a: "\\0"', r"line 1: '.x00' holds a character that no text can have; leave it out"),
        (b"a: &a [*a]", "line 1: an alias stands within what it is an alias of; write it out"),
        (b"a: " + b"[" * 5000, "not YAML: nested too deeply"),
        (LAUGHS, r"line 6: expands to \d+ values with aliases; at most 250000"),
        (MERGES, r"line 8: expands to \d+ values with aliases; at most 250000"),
    ],
)
def test_load_mapping__bad_flow(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(JobError, match=rf"^{message}"):
        load_mapping(path, error=JobError, wanted="wants a mapping")


def test_load_mapping__more_values_than_are_read_bad_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns.base.yaml_file, "MAX_VALUES", 5)
    path = tmp_path / "x.yaml"
    path.write_text("a: [1, 2]")
    assert load_mapping(path, error=JobError, wanted="") == {"a": [1, 2]}
    path.write_text("a: [1,\n2, 3]")
    with pytest.raises(JobError, match=r"^line 2: more than 5 values; this is no such file$"):
        load_mapping(path, error=JobError, wanted="")


def test_load_mapping__aliases_merges_and_dates(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("fast: &fast {rate: 1gbit, on: 2001-01-01}\nlinks: [*fast, {<<: *fast, rate: 1mbit}]")
    fast = {"rate": "1gbit", "on": "2001-01-01"}
    document = load_mapping(path, error=JobError, wanted="")
    assert document == {"fast": fast, "links": [fast, {**fast, "rate": "1mbit"}]}


TEXTS = (
    """
22:30 1:2:3.5 -1:30 0443 0644 -012 00 08 007.5 0o17 0b11 0x50 -0xF 1_000 1_0.5 0x_1 +5 +1.5 .5 -.5 . 1.2.3 1.5e 12e 0e
y Y n N yes Yes NO on On OFF tRUE nULL none None . -. .inf -.Inf .NaN = 2001-01-01 2001-12-14t21:59:43.10-05:00 --
10.0.0.1 10:00 1e-5x 0.x \u0661 12e4567x ~~ <
""".encode()
    .decode("unicode_escape")
    .split()
)
VALUES = {
    "0": 0, "-0": 0, "443": 443, "-17": -17, "1.5": 1.5, "-0.5": -0.5, "1.": 1.0, "1e3": 1000.0, "1e-5": 1e-5,
    "2E+2": 200.0, "true": True, "True": True, "TRUE": True, "false": False, "False": False, "null": None, "~": None,
    "": None, "NULL": None,
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_mapping_of__what_is_no_number_of_json_is_a_text(text: str) -> None:
    """By YAML 1.1 most of these are numbers, booleans, null, dates; PyYAML's own loader shows that."""
    assert mapping_of(f"a: [{text}, {text}]".encode(), error=JobError, wanted="") == {"a": [text, text]}
    assert mapping_of(f"{text}: 1".encode(), error=JobError, wanted="") == {text: 1}


@pytest.mark.parametrize(("text", "value"), VALUES.items())
def test_mapping_of__numbers_booleans_and_null(text: str, value: object) -> None:
    (found,) = mapping_of(f"a: {text}".encode(), error=JobError, wanted="").values()
    assert (found, type(found)) == (value, type(value))


def test_load_mapping__no_file_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"^No such file or directory$"):
        load_mapping(tmp_path / "none", error=JobError, wanted="")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"cuont": 1}, "cuont: no such key; the known ones here are count, name, for, parts, by_name"),
        ({"parts": [{}, {"x": 1}]}, "parts[1].x: no such key; the known ones here are size"),
        ({"by_name": {"a": [{"x": 1}]}}, "by_name.a[0].x: no such key; the known ones here are size"),
        ({"count": "x"}, "count: 'x' should be a valid integer"),
        ({"count": 3}, "count: 3 is odd"),
        ({"name": 5}, "name: 5 should be a valid string; put it in quotes"),
    ],
)
def test_validated__the_first_mistake_is_one_line(document: object, message: str) -> None:
    with pytest.raises(JobError) as caught:
        validated(_Model, document, error=JobError)
    assert str(caught.value) == message


@given(content=st.binary() | st.text("{}[]:,&*!|>-? \n#'\"ab01").map(str.encode))
def test_mapping_of__anything_is_a_mapping_or_one_error(content: bytes) -> None:
    with suppress(JobError):
        assert isinstance(mapping_of(content, error=JobError, wanted=""), dict)
