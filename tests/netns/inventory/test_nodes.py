"""netns.inventory.nodes: Kubernetes' notation."""

from __future__ import annotations

from netns.inventory.nodes import Taint


def test_taint__reads_as_kubernetes_writes_it() -> None:
    assert str(Taint("gpu", "present", "NoSchedule")) == "gpu=present:NoSchedule"
    assert str(Taint("gpu", effect="NoExecute")) == "gpu:NoExecute"
