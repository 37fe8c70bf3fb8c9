"""srd.qlog.schema: names and fields, and docs/trace.md against them."""

from __future__ import annotations

import re
from pathlib import Path

from srd.proto.trace import AckReceived, BurstSent, PeerOpened
from srd.qlog.schema import BY_NAME, EVENT_SCHEMA, FIELDS, FILE_SCHEMA, KINDS, NAMES, name_of

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "trace.md").read_text()


def test_name_of__snake_case() -> None:
    assert name_of(BurstSent) == "srd:burst_sent"
    assert name_of(PeerOpened) == "srd:peer_opened"
    assert name_of(AckReceived) == "srd:ack_received"


def test_names__are_unique_and_invertible() -> None:
    assert len(set(NAMES.values())) == len(KINDS) == len(BY_NAME) == 16
    assert all(BY_NAME[NAMES[kind]] is kind for kind in KINDS)


def test_fields__are_what_json_has() -> None:
    """The reader checks types by this table; it could not read a field of another type."""
    for kind in KINDS:
        assert FIELDS[kind]
        assert set(FIELDS[kind].values()) <= {int, float, str, bool}, kind


def test_document__has_every_event_and_field_with_its_type() -> None:
    sections = re.findall(r"^### (\w+)$(.*?)(?=^#|^Of the|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    documented = {f"srd:{name}": re.findall(r"^\| `(\w+)` \| (\w+) \|", text, re.MULTILINE) for name, text in sections}
    assert documented == {
        NAMES[kind]: [(name, wanted.__name__) for name, wanted in FIELDS[kind].items()] for kind in KINDS
    }
    assert len(sections) == len(documented), "an event is described twice"


def test_document__names_the_schemas() -> None:
    assert EVENT_SCHEMA in DOCUMENT
    assert FILE_SCHEMA in DOCUMENT


def test_document__example_is_an_event() -> None:
    (line,) = re.findall(r'^\{"time".*\}$', DOCUMENT, re.MULTILINE)
    name = re.search(r'"name":"([\w:]+)"', line)
    assert name
    assert re.findall(r'"(\w+)":', line.split('"data":')[1]) == list(FIELDS[BY_NAME[name[1]]])
