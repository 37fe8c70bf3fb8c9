"""netns.yaml_file: rules of every YAML file of this project."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

import netns.yaml_file
from netns.errors import JobError
from netns.yaml_file import MAX_FILE_BYTES, first_mistake, load_mapping

LAUGHS = b"a0: &a0 [x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 10)
)
MERGES = b"a0: &a0 {x: 1}\n" + b"".join(
    b"a%d: &a%d {<<: [%s]}\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 6)) for n in range(1, 10)
)


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    count: int = 1
    name: str = ""

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
        (b"a: 1\nb: 0x" + b"f" * 30, "line 2: 0xf+ is no number of 64 bits; give a smaller one, or quote a text"),
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
    monkeypatch.setattr(netns.yaml_file, "MAX_VALUES", 5)
    path = tmp_path / "x.yaml"
    path.write_text("a: [1, 2]")
    assert load_mapping(path, error=JobError, wanted="") == {"a": [1, 2]}
    path.write_text("a: [1,\n2, 3]")
    with pytest.raises(JobError, match=r"^line 2: more than 5 values; this is no such file$"):
        load_mapping(path, error=JobError, wanted="")


def test_load_mapping__aliases_merges_and_dates(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("fast: &fast {rate: 1gbit, on: 2001-01-01}\nlinks: [*fast, {<<: *fast, rate: 1mbit}]")
    fast = {"rate": "1gbit", True: "2001-01-01"}
    document = load_mapping(path, error=JobError, wanted="")
    assert document == {"fast": fast, "links": [fast, {**fast, "rate": "1mbit"}]}


def test_load_mapping__no_file_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"^No such file or directory$"):
        load_mapping(tmp_path / "none", error=JobError, wanted="")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"cuont": 1}, "cuont: no such key; the known ones here are a, b"),
        ({"count": "x"}, "count: 'x' should be a valid integer"),
        ({"count": 3}, "count: 3 is odd"),
        ({"name": 5}, "name: 5 should be a valid string; put it in quotes"),
    ],
)
def test_first_mistake(document: object, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Model.model_validate(document)
    assert first_mistake(caught.value, known_keys=lambda _: ["a", "b"]) == message
