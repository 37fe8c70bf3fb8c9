from __future__ import annotations

import json
from pathlib import Path

from netns.backends.relay.spec import load_spec
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
