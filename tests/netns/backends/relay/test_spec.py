from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netns.backends.relay.spec import LinkSpec, RelaySpec, TapSpec, load_spec
from netns.errors import BackendError
from netns.netem.shape import Shape


def document() -> dict[str, Any]:
    link = {
        "name": "leaf1-spine1",
        "a": {"netns": "demo-leaf1", "ifname": "spine1"},
        "b": {"netns": "demo-spine1", "ifname": "leaf1"},
        "shape_ab": Shape(delay_us=500).to_dict(),
        "shape_ba": Shape(loss_percent=1).to_dict(),
        "seed_ab": 1,
        "seed_ba": 2,
    }
    return {"lab": "demo", "control": "/run/demo/relay.sock", "links": [link]}


def written(path: Path, content: object) -> Path:
    file = path / "relay.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_load_spec(tmp_path: Path) -> None:
    link = LinkSpec(
        name="leaf1-spine1",
        a=TapSpec(netns="demo-leaf1", ifname="spine1"),
        b=TapSpec(netns="demo-spine1", ifname="leaf1"),
        shape_ab=Shape(delay_us=500),
        shape_ba=Shape(loss_percent=1),
        seed_ab=1,
        seed_ba=2,
    )
    expected = RelaySpec(lab="demo", control=Path("/run/demo/relay.sock"), links=(link,))
    assert load_spec(written(tmp_path, document())) == expected


def test_load_spec__unreadable(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"none\.json: No such file or directory"):
        load_spec(tmp_path / "none.json")
    with pytest.raises(BackendError, match="not JSON"):
        load_spec(written(tmp_path, "{"))
    with pytest.raises(BackendError, match="top: 'links' is missing or not a list"):
        load_spec(written(tmp_path, []))


@pytest.mark.parametrize("key", list(document()["links"][0]))
def test_load_spec__each_key_of_a_link_is_needed(tmp_path: Path, key: str) -> None:
    broken = document()
    del broken["links"][0][key]
    with pytest.raises(BackendError, match=rf"relay\.json: links\[0\]: '{key}' is missing"):
        load_spec(written(tmp_path, broken))


def test_load_spec__names_the_place_of_a_fault(tmp_path: Path) -> None:
    broken = document()
    broken["links"][0]["b"]["ifname"] = 3
    with pytest.raises(BackendError, match=r"links\[0\]\.b: 'ifname' is missing or not a str"):
        load_spec(written(tmp_path, broken))
    broken = document()
    broken["links"][0]["shape_ab"]["loss_percent"] = 120
    with pytest.raises(BackendError, match="loss: 120 % is not between"):
        load_spec(written(tmp_path, broken))


def test_load_spec__no_link_and_a_link_twice(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="there are none to relay"):
        load_spec(written(tmp_path, document() | {"links": []}))
    with pytest.raises(BackendError, match="leaf1-spine1 is there twice"):
        load_spec(written(tmp_path, document() | {"links": document()["links"] * 2}))
