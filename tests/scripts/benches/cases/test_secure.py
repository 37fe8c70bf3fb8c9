"""scripts.benches.cases.secure: encrypted peers over plain ones, and over those of the others that there are."""

from __future__ import annotations

from scripts.benches.cases.secure import WANTED, over_wireguard, ratios

OURS = {"gbps_mtu9000": 15.0, "gbps_mtu1500": 6.0, "p50_64b_us": 120.0}
OVER_PLAIN = {
    "secure_over_plain_ratio_mtu9000": 0.5,
    "secure_over_plain_ratio_mtu1500": 0.25,
    "p50_64b_added_us": 20.0,
}


def test_ratios() -> None:
    plain = {"gbps_mtu9000": 30.0, "gbps_mtu1500": 24.0, "p50_64b_us": 100.0}
    found = ratios(OURS, plain, {"gbps_mtu1500": 0.5})
    assert found == OVER_PLAIN | {"aioquic_ratio": 12.0}
    assert found.keys() == {each.figure for each in WANTED}
    assert ratios(OURS, plain, {}) == OVER_PLAIN


def test_over_wireguard() -> None:
    found = over_wireguard(OURS, {"gbps_mtu9000": 1.5, "gbps_mtu1500": 0.5})
    assert found == {"wireguard_ratio_mtu9000": 10.0, "wireguard_ratio_mtu1500": 12.0}
    assert over_wireguard(OURS, {}) == {}
