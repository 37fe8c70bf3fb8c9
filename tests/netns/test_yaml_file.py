"""netns.yaml_file: what every YAML file of this project has in common; more in test_topology_file and test_job."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from netns.errors import JobError
from netns.yaml_file import MAX_FILE_BYTES, first_mistake, load_mapping


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    count: int = 1

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
    ],
)
def test_load_mapping__bad_flow(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(JobError, match=rf"^{message}"):
        load_mapping(path, error=JobError, wanted="wants a mapping")


def test_load_mapping__no_file_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"^No such file or directory$"):
        load_mapping(tmp_path / "none", error=JobError, wanted="")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"cuont": 1}, "cuont: no such key; the known ones here are a, b"),
        ({"count": "x"}, "count: 'x' should be a valid integer"),
        ({"count": 3}, "count: 3 is odd"),
    ],
)
def test_first_mistake(document: object, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        _Model.model_validate(document)
    assert first_mistake(caught.value, known_keys=lambda _: ["a", "b"]) == message
