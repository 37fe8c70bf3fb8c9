"""srd.metrics.sample: what a snapshot's JSON says is read; anything else is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.errors import SrdError
from srd.metrics.sample import Sample, parse_untrusted
from tests.srd.metrics.test_exposition import snapshot

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_parse__a_snapshot() -> None:
    made = snapshot(peers=2)
    sample = parse_untrusted(json.dumps(made.as_json()))
    assert (sample.peer_count, sample.tx_bytes, sample.title) == (2, made.stats.tx_bytes, made.title)
    for read, peer in zip(sample.peers, made.peers, strict=True):
        assert (read.number, read.address, read.cwnd_bytes) == (peer.number, peer.address, peer.stats.cwnd_bytes)
        assert [(path.path, path.state) for path in read.paths] == [(p.path, p.state.name.lower()) for p in peer.paths]


@pytest.mark.parametrize("text", ["", "5", "[]", "{}", "[" * 100_000, "\0", '{"peers": []}', "NaN"])
def test_parse__something_else_bad_flow(text: str) -> None:
    with pytest.raises(SrdError, match="no srd of this version"):
        parse_untrusted(text)


@given(st.data())
def test_parse__any_values_are_read_or_refused(data: st.DataObject) -> None:
    def spoilt(value: object) -> Any:
        if data.draw(st.integers(0, 30)) == 0:
            return data.draw(JSON)
        if isinstance(value, dict):
            return {key: spoilt(inner) for key, inner in value.items()}
        return [spoilt(each) for each in value[:2]] if isinstance(value, list) else value

    with suppress(SrdError):
        assert isinstance(parse_untrusted(json.dumps(spoilt(snapshot(peers=1).as_json()))), Sample)
