"""netns.inventory.nodes: Kubernetes' notation."""

from __future__ import annotations

from netns.inventory.nodes import Taint, layer_label


def test_taint__reads_as_kubernetes_writes_it() -> None:
    assert str(Taint("gpu", "present", "NoSchedule")) == "gpu=present:NoSchedule"
    assert str(Taint("gpu", effect="NoExecute")) == "gpu:NoExecute"


def test_layer_label__is_that_of_eks() -> None:
    assert layer_label(3) == "topology.k8s.aws/network-node-layer-3"
