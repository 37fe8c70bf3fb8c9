"""scripts.benches.cases.tunnel: its ratios, of the contestants that there are."""

from __future__ import annotations

import pytest

from scripts.benches.cases.tunnel import NEEDS, WANTED, ratios

TCP = {
    "gbps": 20.0,
    "ping_ms": 0.25,
    "one_flow_mbps": 200.0,
    "one_flow_loss_mbps": 100.0,
    "redis_p999_ms": 20.0,
}
OURS = {
    "gbps": 10.0,
    "ping_ms": 0.5,
    "one_flow_mbps": 800.0,
    "one_flow_loss_mbps": 700.0,
    "redis_p999_ms": 5.0,
    "stall_ms": 20.0,
    "connections": 1000,
}


@pytest.mark.parametrize(
    ("missing", "figure", "vpns"),
    [
        ("", "", ["wireguard-go", "openvpn"]),
        ("iperf3", "gbps", ["wireguard-go", "openvpn"]),
        ("redis-server", "redis_p999_ms", ["wireguard-go", "openvpn"]),
        ("openvpn", "", ["wireguard-go"]),
    ],
)
def test_ratios__without_what_is_missing(missing: str, figure: str, vpns: list[str]) -> None:
    ours, tcp = ({key: value for key, value in each.items() if key != figure} for each in (OURS, TCP))
    vpn = {"ping_ms": 1.0} | ({} if figure == "gbps" else {"gbps": 2.0})
    found = ratios(ours, {"tcp": tcp, **dict.fromkeys(vpns, vpn)})
    lacking = [figure for need in NEEDS if need.name == missing for figure in need.figures]
    assert {each.figure for each in WANTED} - ours.keys() - found.keys() == set(lacking)
