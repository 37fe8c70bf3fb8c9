from __future__ import annotations

import json
from pathlib import Path

import pytest

from netns.backends.relay.spec import load_spec
from netns.errors import BackendError
from netns.lab.operations import RelayLink, StartRelay
from netns.netem.shape import Shape

LINK = RelayLink("l-s", "demo-l", "s", "demo-s", "l", Shape(delay_us=500), Shape(loss_percent=1), 1, 2)


def written(path: Path, content: object) -> Path:
    file = path / "relay.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_load_spec__is_what_the_lab_has_written(tmp_path: Path) -> None:
    document = StartRelay("demo", (LINK,)).to_dict(control="/run/demo/relay.sock")
    assert load_spec(written(tmp_path, document)) == (Path("/run/demo/relay.sock"), (LINK,))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "no specification of a relay"),
        ([], "no specification of a relay"),
        ({"links": []}, "no specification of a relay .'control'"),
        ({"control": "c", "links": [3]}, "no specification of a relay"),
        ({"control": "c", "links": [{"name": "l-s"}]}, "no specification of a relay .'shape_ab'"),
    ],
)
def test_load_spec__bad_flow(tmp_path: Path, content: object, reason: str) -> None:
    with pytest.raises(BackendError, match=rf"relay\.json: {reason}"):
        load_spec(written(tmp_path, content))
    with pytest.raises(BackendError, match=r"none\.json: No such file or directory"):
        load_spec(tmp_path / "none.json")
