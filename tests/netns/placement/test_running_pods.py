"""netns.placement.running_pods: usage of nodes by kubectl's pods, and one-line errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.errors import NodesError
from netns.placement.model import Usage
from netns.placement.running_pods import pods_untrusted, read_pods


def pod(*requests: dict[str, str], node: str = "n1", phase: str = "Running", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": each, "limits": {}}} for each in requests]
    return {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"nodeName": node, "containers": containers, **spec},
        "status": {"phase": phase},
    }


def usage(*pods: dict[str, Any]) -> tuple[Usage, ...]:
    return pods_untrusted({"items": list(pods)})


def test_pods__containers_add_up_and_equal_pods_are_counted_together() -> None:
    each = pod({"cpu": "1500m", "memory": "1Gi"}, {"cpu": "500m"})
    assert usage(each, each, pod(node="n2")) == (
        Usage({"cpu": 2000, "memory": 2**30}, count=2, node="n1"),
        Usage({}, count=1, node="n2"),
    )


def test_pods__ended_or_waiting_ones_take_nothing() -> None:
    """A pod that is being deleted runs until it has ended."""
    assert usage(pod({"cpu": "1"}, phase="Succeeded"), pod(phase="Failed"), pod(node="", phase="Pending")) == ()
    assert len(usage(pod({"cpu": "1"}, phase="Pending"), pod(phase="Unknown"))) == 2


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"initContainers": [{"resources": {"requests": {"cpu": "5"}}}]}, 5000),
        ({"initContainers": [{"resources": {"requests": {"cpu": "500m"}}}]}, 1000),
        ({"initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}]}, 3000),
        (
            {"initContainers": [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}},
                {"resources": {"requests": {"cpu": "4"}}},
            ]},
            6000,
        ),
        ({"overhead": {"cpu": "250m"}}, 1250),
        ({"resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "250m"}}, 3250),
    ],
)  # fmt: skip
def test_pods__effective_requests(spec: dict[str, Any], cpu: int) -> None:
    (found,) = usage(pod({"cpu": "1"}, **spec))
    assert found.requests == {"cpu": cpu}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "holds no items (kubectl get pods --all-namespaces -o json)"),
        ("[]", "holds no items"),
        ("{", "line 1, column 2: not JSON"),
        (json.dumps({"items": [pod({"cpu": "x"})]}), "items[0].spec.containers[0].resources.requests: cpu: 'x' is no"),
        (json.dumps({"items": [{"spec": {"nodeName": 7}}]}), "items[0].spec.nodeName: 7 should be a valid string"),
        (json.dumps({"items": [pod(node="\x1b[2J")]}), "items[0].spec.nodeName: "),
    ],
)
def test_read_pods__bad_flow(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "pods.json"
    path.write_text(content)
    with pytest.raises(NodesError) as caught:
        read_pods(path)
    assert str(caught.value).startswith(f"{path}: {message}")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(
        st.sampled_from(["items", "spec", "nodeName", "containers", "resources", "requests", "cpu", "kind"]), each
    ),
    max_leaves=12,
)  # fmt: skip


@given(anything)
def test_pods_untrusted__raises_nothing_but_nodes_error(document: object) -> None:
    try:
        pods_untrusted(document)
    except NodesError:
        return
