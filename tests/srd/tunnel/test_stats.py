"""srd.tunnel.stats: reports of several tunnels as metrics."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from srd.errors import SrdError
from srd.metrics.exposition import families_text
from srd.tunnel.stats import _MEANINGS, families


def report(interface: str, **values: Any) -> dict[str, Any]:
    """What a tunnel tells, with a number of its own for each metric."""
    numbers = {name: number for number, name in enumerate(_MEANINGS)}
    return {"interface": interface, **numbers, "peers": [{}, {}], "dropped": {"queue": 3}, **values}


def metrics_text(*reports: dict[str, Any]) -> str:
    return families_text({each["interface"]: families(each) for each in reports}, label="interface")


def test_families__each_metric_with_the_interface() -> None:
    text = metrics_text(report("srd0"), report("srd1", tx_bytes=77, dropped={"queue": 5, "late": 1}))
    found = list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    assert len(found) == len(_MEANINGS)
    samples = {(each.name, *sorted(each.labels.items())): each.value for family in found for each in family.samples}
    first, second = ("interface", "srd0"), ("interface", "srd1")
    assert samples["srd_tunnel_peers", first] == 2
    assert samples["srd_tunnel_tx_bytes_total", first] == list(_MEANINGS).index("tx_bytes")
    assert samples["srd_tunnel_tx_bytes_total", second] == 77
    assert samples["ena_srd_tx_pkts_total", first] == list(_MEANINGS).index("ena_srd_tx_pkts")
    assert samples["srd_tunnel_dropped_total", second, ("reason", "queue")] == 5
    assert samples["srd_tunnel_dropped_total", second, ("reason", "late")] == 1


def test_families__none_and_another_version_bad_flow() -> None:
    assert metrics_text() == "# EOF\n"
    older = report("srd0")
    del older["late"]
    with pytest.raises(SrdError, match=r"^srd0: is a tunnel of another version, which has no late$"):
        metrics_text(older)
