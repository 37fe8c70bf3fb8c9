"""netns.backends.choice: the backend and the reason."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import netns.backends.choice
from netns.backends.choice import Wanted, choose_backend, require_root
from netns.errors import BackendError
from netns.topology.model import leaf_spine, reference

REASON = "Specified qdisc kind is unknown"


def kernel(monkeypatch: pytest.MonkeyPatch, *, missing: str | None, lacking: str | None = None) -> None:
    monkeypatch.setattr(netns.backends.choice, "missing_netem", lambda: missing)
    monkeypatch.setattr(netns.backends.choice, "missing", lambda _shape: lacking)
    monkeypatch.setattr(netns.backends.choice, "accepts_seeds", lambda: True)
    monkeypatch.setattr(netns.backends.choice, "missing_link", lambda _kind: None)
    monkeypatch.setattr(netns.backends.choice, "missing_ipv6", lambda: None)
    monkeypatch.setattr(netns.backends.choice, "missing_resilient", lambda: None)
    monkeypatch.setattr(netns.backends.choice, "TUN_DEVICE", Path(os.devnull))  # which is anybody's to open


def test_choose_fabric__auto_takes_the_kernel_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, missing=None)
    assert choose_backend(reference(), "auto") == ("kernel", "this kernel has netem")
    assert choose_backend(reference(), "kernel") == ("kernel", "requested")
    assert choose_backend(reference(), "relay") == ("relay", "requested")


def test_choose_backend__auto_gives_the_reason_for_the_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, missing=REASON)
    assert choose_backend(reference(), "auto") == ("relay", f"this kernel has no netem: {REASON}")


def test_choose_fabric__kernel_without_netem_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, missing=REASON)
    with pytest.raises(BackendError, match=rf"this kernel has no netem \({REASON}\); use --backend relay"):
        choose_backend(reference(), "kernel")


def test_choose_backend__unshaped_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, missing=REASON)
    assert choose_backend(leaf_spine(), "auto") == ("kernel", "no link is shaped")
    assert choose_backend(leaf_spine(), "kernel") == ("kernel", "no link is shaped")
    assert choose_backend(leaf_spine(), "relay") == ("relay", "no link is shaped")


def test_choose_fabric__no_tun_bad_flow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernel(monkeypatch, missing=REASON)
    monkeypatch.setattr(netns.backends.choice, "TUN_DEVICE", tmp_path / "tun")
    with pytest.raises(BackendError, match="tun is missing, which the relay backend needs; load the module tun"):
        choose_backend(reference(), "auto")


def test_require_root__bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BackendError, match=r"^srd-lab up needs root, .*sudo, or as srd-lab rootless -- COMMAND$"):
        require_root("srd-lab up")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    require_root("srd-lab up")


def test_choose_backend__unsupported_shape_fails_before_building(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, missing=None, lacking="its netem has no seed")
    why = "link leaf1-spine1: this kernel cannot do limit 10 delay 500us rate 250mbit: its netem has no seed"
    assert choose_backend(reference(), "auto") == ("relay", why)
    assert choose_backend(reference(), "relay") == ("relay", "requested")
    with pytest.raises(BackendError, match=f"^{why}; use --backend relay$"):
        choose_backend(reference(), "kernel")


def test_choose_backend__notes_missing_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, missing=None)
    monkeypatch.setattr(netns.backends.choice, "accepts_seeds", lambda: False)
    note = "; its draws are its own: it takes no seeds before Linux 6.6"
    assert choose_backend(reference(), "kernel") == ("kernel", "requested" + note)


@pytest.mark.parametrize("fabric", ["auto", "kernel", "relay"])
@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ("link", r"^this kernel has no veth \(why\), of which links are made; load it: modprobe veth$"),
        ("ipv6", r"^ipv6: this kernel has none \(why\); boot without ipv6.disable=1, or leave ipv6 out$"),
        ("resilient", r"^ecmp: resilient: this kernel has no such nexthop groups \(why\); use hash-threshold or Linux"),
    ],
)
def test_choose_backend__missing_feature_bad_flow(
    monkeypatch: pytest.MonkeyPatch, fabric: Wanted, feature: str, message: str
) -> None:
    kernel(monkeypatch, missing=None)
    monkeypatch.setattr(netns.backends.choice, f"missing_{feature}", lambda *_: "why")
    with pytest.raises(BackendError, match=message):
        choose_backend(replace(reference(), ipv6=True, ecmp="resilient"), fabric)


def test_choose_backend__unused_features_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, missing=None)
    for feature in ("ipv6", "resilient"):
        monkeypatch.setattr(netns.backends.choice, f"missing_{feature}", lambda: "why")
    assert choose_backend(reference(), "kernel") == ("kernel", "requested")
