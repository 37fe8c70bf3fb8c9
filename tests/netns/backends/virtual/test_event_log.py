"""netns.backends.virtual.event_log: one JSON object a line."""

from __future__ import annotations

import io
import json

from netns.backends.virtual.event_log import JsonLines
from netns.backends.virtual.virtual_link import PacketEvent

RECORD = PacketEvent(1500, "queued", "leaf1>spine1", 3, "10.0.1.1:7>10.0.2.1:8", 9014, marked=True)


def test_json_lines() -> None:
    file = io.StringIO()
    write = JsonLines(file)
    write(RECORD)
    write(RECORD._replace(fate="left"))
    lines = file.getvalue().splitlines()
    assert [json.loads(line)["fate"] for line in lines] == ["queued", "left"]
    assert PacketEvent(**json.loads(lines[0])) == RECORD
