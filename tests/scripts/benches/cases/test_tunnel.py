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


def test_ratios() -> None:
    found = ratios(OURS, {"tcp": TCP, "wireguard-go": {"gbps": 2.0}, "openvpn": {"gbps": 0.5}})
    assert found == {
        "tunnel_over_tcp_ratio": 0.5,
        "tunnel_gbps": 10.0,
        "tunnel_over_vpn_ratio": 5.0,
        "one_flow_speedup": 4.0,
        "one_flow_speedup_loss": 7.0,
        "p999_ratio": 0.25,
        "ping_added_ms": 0.25,
    }
    assert {each.figure for each in WANTED} <= OURS.keys() | found.keys()


@pytest.mark.parametrize(
    ("missing", "figure", "vpns"),
    [
        ("iperf3", "gbps", ["wireguard-go", "openvpn"]),
        ("redis-server", "redis_p999_ms", ["wireguard-go", "openvpn"]),
        ("openvpn", "", ["wireguard-go"]),
    ],
)
def test_ratios__without_what_is_missing(missing: str, figure: str, vpns: list[str]) -> None:
    ours, tcp = ({key: value for key, value in each.items() if key != figure} for each in (OURS, TCP))
    vpn = {"ping_ms": 1.0} | ({} if figure == "gbps" else {"gbps": 2.0})
    found = ratios(ours, {"tcp": tcp, **dict.fromkeys(vpns, vpn)})
    (need,) = (each for each in NEEDS if each.name == missing)
    assert {each.figure for each in WANTED} - ours.keys() - found.keys() == set(need.figures)
