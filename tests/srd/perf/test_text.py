from __future__ import annotations

from itertools import pairwise

import pytest

from srd.perf.iperf_json import document
from srd.perf.parameters import Direction, Parameters
from srd.perf.text import RULE, TextReport, amount
from tests.srd.perf.ends import Seen, served


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [  # as iperf 3.12 writes them
        (0, 1000, "0.00 unit"),
        (1_310_720, 1024, "1.25 Munit"),
        (10_485_760, 1000, "10.5 Munit"),
        (855_638_016, 1024, " 816 Munit"),
        (6_820_000_000, 1000, "6.82 Gunit"),
        (1_047_552, 1024, "1023 Kunit"),
        (999_600, 1000, "1000 Kunit"),
    ],
)
def test_amount__has_iperf3s_form(value: float, step: int, text: str) -> None:
    assert amount(value, step=step, unit="unit") == text


async def test_report__has_a_line_of_each_stream_and_sums() -> None:
    lines = list[str]()
    parameters = Parameters(seconds=0.0, size_bytes=1 << 20, streams=2, block_bytes=10_000, direction=Direction.BOTH)
    text, seen = TextReport(lines.append), Seen()
    async with served() as server:
        report = await server.run(parameters, seen=seen)
    text.started(seen.starts[0])
    for interval in seen.intervals:
        text.interval(interval)
    text.ended(report)
    print("\n".join(lines))
    assert lines[5].startswith("[ ID][Role] Interval")
    assert lines[6].startswith("[  1][TX-C]   0.00-")
    assert lines[8].startswith("[  3][RX-C]   0.00-")
    assert sum(line.startswith("[SUM][TX-C]") for line in lines) == 3
    assert sum(line.endswith("sender") for line in lines) == sum(line.endswith("receiver") for line in lines) == 6
    assert not any(one == other == RULE for one, other in pairwise(lines))
    assert len(document(report)["end"]["streams"]) == 4
