from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.perf.control import Control, ControlKind, counts_untrusted, decode_untrusted, encode, reason_untrusted
from srd.perf.errors import PerfError
from srd.perf.meter import Load, Total
from srd.perf.parameters import Parameters
from srd.perf.results import EndFigures, results_untrusted

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
)
RESULTS = asdict(EndFigures([Total(0, sends=False, seconds=1.0, size_bytes=5)], Load(1.0, 1.0, 0.0), ""))


def test_decode_untrusted__is_the_inverse_of_encode() -> None:
    assert decode_untrusted(encode(ControlKind.END, sent=[1, 2])[4:]) == (ControlKind.END, {"sent": [1, 2]})


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_decode_untrusted__any_bytes(body: bytes) -> None:
    try:
        kind, fields = decode_untrusted(body)
    except PerfError:
        return
    assert kind in ControlKind
    assert isinstance(fields, dict)


@given(JSON)
def test_reason_untrusted__is_one_printable_line(reason: Any) -> None:
    assert reason_untrusted({"reason": reason}).isprintable()


@given(JSON)
def test_counts_untrusted__any_json(sent: Any) -> None:
    try:
        counts = counts_untrusted({"sent": sent}, streams=1)
    except PerfError:
        return
    assert counts[0] >= 0


@given(
    st.dictionaries(st.sampled_from([*RESULTS, "totals"]), JSON),
    st.dictionaries(st.sampled_from(list(RESULTS["totals"][0])), JSON),
)
def test_results_untrusted__any_json(changed: dict[str, Any], total: dict[str, Any]) -> None:
    fields = {**RESULTS, "totals": [{**RESULTS["totals"][0], **total}], **changed}
    try:
        results = results_untrusted(fields, parameters=Parameters())
    except PerfError:
        return
    assert results.totals[0].size_bytes >= 0
    assert results.totals[0].number == 0


def test_results_untrusted__no_escape_codes_in_output() -> None:
    results = results_untrusted({**RESULTS, "output": "one\x1b[2J\ntwo"}, parameters=Parameters())
    assert results.output == "one[2J\ntwo"


def reading(data: bytes) -> Control:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return Control(reader, None, most_bytes=100)  # type: ignore[arg-type]


async def test_receive__messages_in_order_and_the_end() -> None:
    control = reading(encode(ControlKind.READY, cookie="a") + encode(ControlKind.START))
    assert await control.receive(ControlKind.READY) == (ControlKind.READY, {"cookie": "a"})
    assert await control.receive(ControlKind.START, ControlKind.FINISHED) == (ControlKind.START, {})
    with pytest.raises(PerfError, match="has closed"):
        await control.receive(ControlKind.START)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (encode(ControlKind.FAILED, reason="a reason"), "^a reason$"),
        (encode(ControlKind.REFUSED, reason="busy\n"), r"^busy\\n$"),
        (encode(ControlKind.END), "sent end where ready was expected"),
        (encode(ControlKind.READY, cookie="a" * 100), "100 are allowed"),
        (b"\xff\xff\xff\xff", "100 are allowed"),
        (b"\0\0\0\x02{", "has closed"),
        (b"\0\0", "has closed"),
    ],
)
async def test_receive__bad_flow(data: bytes, error: str) -> None:
    with pytest.raises(PerfError, match=error):
        await reading(data).receive(ControlKind.READY)
