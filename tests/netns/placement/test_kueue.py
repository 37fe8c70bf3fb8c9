"""netns.placement.kueue: manifests with the CRDs' own field names, and Kueue's rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from netns.errors import JobError
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.layers import levels_of
from netns.inventory.nodes import HOSTNAME_LABEL, layer_label
from netns.placement import Job
from netns.placement.kueue import Kind, dump, manifests, topology_annotations
from netns.topology.model import leaf_spine

FIELDS = json.loads((Path(__file__).resolve().parents[2] / "data" / "kueue_crd_fields.json").read_text())
NODES = nodes_of(leaf_spine(name="demo", leaves=2, hosts_per_leaf=4))
FULL = {
    "topology": {"required": 2},
    "resources": {"cpu": "1500m", "nvidia.com/gpu": 1},
    "env": {"LOG": "1"},
    "node_selector": {"zone": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "queue": "research",
}
PREFIX = "kueue.x-k8s.io/podset-"


def job(**fields: object) -> Job:
    return Job.model_validate({"name": "ring", "ranks": 4, "command": ["x"], "image": "example/ring:1", **fields})


def made(spec: Job, kind: Kind = "job") -> dict[str, dict[str, Any]]:
    documents = list(yaml.safe_load_all(dump(manifests(spec, nodes=NODES, levels=levels_of(NODES), kind=kind))))
    return {document["kind"]: document for document in documents}


def check(value: object, fields: object, *, at: str) -> None:
    """Every key of `value` is one of `fields`."""
    if isinstance(fields, str):
        fields = FIELDS[fields]
    if isinstance(value, dict) and isinstance(fields, dict):
        for key, inner in value.items():
            assert key in fields or "*" in fields, f"{at}.{key}: no such field"
            check(inner, fields.get(key, fields.get("*")), at=f"{at}.{key}")
    elif isinstance(value, list):
        assert isinstance(fields, list), f"{at}: is no list"
        for inner in value:
            check(inner, fields[0], at=f"{at}[]")
    else:
        assert not isinstance(value, dict), f"{at}: is no mapping"
        assert fields is None, f"{at}: is a mapping or list"


@pytest.mark.parametrize("kind", ["job", "pytorchjob"])
@pytest.mark.parametrize("fields", [{}, FULL])
def test_manifests__only_published_field_names(kind: Kind, fields: dict[str, object]) -> None:
    found = made(job(**fields), kind)
    assert list(found)[:4] == ["Topology", "ResourceFlavor", "ClusterQueue", "LocalQueue"]
    for name, document in found.items():
        assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
        assert set(document["metadata"]) <= {"name", "namespace", "labels"}
        check(document["spec"], FIELDS[name], at=name)
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", document["metadata"]["name"])


def test_manifests__refer_to_each_other() -> None:
    found = made(job(**FULL))
    assert {document["apiVersion"] for name, document in found.items() if name != "Job"} == {"kueue.x-k8s.io/v1beta2"}
    assert found["ResourceFlavor"]["spec"]["topologyName"] == found["Topology"]["metadata"]["name"]
    group = found["ClusterQueue"]["spec"]["resourceGroups"][0]
    assert group["flavors"][0]["name"] == found["ResourceFlavor"]["metadata"]["name"]
    assert found["LocalQueue"]["spec"]["clusterQueue"] == found["ClusterQueue"]["metadata"]["name"]
    assert found["Job"]["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": found["LocalQueue"]["metadata"]["name"]}
    assert found["Job"]["metadata"]["namespace"] == found["LocalQueue"]["metadata"]["namespace"]


def test_manifests__keep_kueues_rules() -> None:
    found = made(job(**FULL))
    levels = [level["nodeLabel"] for level in found["Topology"]["spec"]["levels"]]
    assert levels == [layer_label(1), layer_label(2), layer_label(3), HOSTNAME_LABEL]  # the host last, at most 8
    assert found["ResourceFlavor"]["spec"]["nodeLabels"]  # at least one with a topology
    group = found["ClusterQueue"]["spec"]["resourceGroups"][0]
    assert [resource["name"] for resource in group["flavors"][0]["resources"]] == group["coveredResources"]
    quota = {resource["name"]: resource["nominalQuota"] for resource in group["flavors"][0]["resources"]}
    assert quota == {"cpu": "6", "nvidia.com/gpu": "4", "pods": "8"}  # the job's requests: not reported by nodes


def test_manifests__a_job() -> None:
    spec = made(job(**FULL))["Job"]["spec"]
    assert (spec["parallelism"], spec["completions"], spec["completionMode"], spec["suspend"]) == (
        4,
        4,
        "Indexed",
        True,
    )
    assert spec["template"]["metadata"]["annotations"] == {f"{PREFIX}required-topology": layer_label(2)}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1500m", "nvidia.com/gpu": "1"},
        "limits": {"nvidia.com/gpu": "1"},
    }
    assert container["env"] == [{"name": "LOG", "value": "1"}]
    assert spec["template"]["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


def test_manifests__a_pytorch_job_is_a_group_of_master_and_workers() -> None:
    specs = made(job(**FULL), "pytorchjob")["PyTorchJob"]["spec"]["pytorchReplicaSpecs"]
    assert {role: spec["replicas"] for role, spec in specs.items()} == {"Master": 1, "Worker": 3}
    for spec in specs.values():
        assert spec["template"]["metadata"]["annotations"][f"{PREFIX}group-name"] == "ring"
        assert spec["template"]["spec"]["containers"][0]["name"] == "pytorch"  # the operator requires this name
    alone = made(job(ranks=1), "pytorchjob")["PyTorchJob"]["spec"]["pytorchReplicaSpecs"]
    assert list(alone) == ["Master"]
    assert f"{PREFIX}group-name" not in alone["Master"]["template"]["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("fields", "annotations"),
    [
        ({}, {"unconstrained-topology": "true"}),
        ({"topology": {"preferred": 3}}, {"preferred-topology": layer_label(3)}),
        (
            {"topology": {"required": 1}, "slices": [{"layer": 3, "size": 2}]},
            {
                "required-topology": layer_label(1),
                "slice-required-topology": layer_label(3),
                "slice-size": "2",
            },
        ),
    ],
)
def test_topology_annotations(fields: dict[str, object], annotations: dict[str, str]) -> None:
    assert topology_annotations(job(**fields)) == {PREFIX + name: value for name, value in annotations.items()}


def test_topology_annotations__nested_slices_are_one_list() -> None:
    spec = job(slices=[{"layer": 2, "size": 4}, {"layer": 3, "size": 2}])
    ((name, value),) = topology_annotations(spec).items()
    assert name == f"{PREFIX}slice-required-topology-constraints"
    assert json.loads(value) == [{"topology": layer_label(2), "size": 4}, {"topology": layer_label(3), "size": 2}]


def test_manifests__bad_flow() -> None:
    with pytest.raises(
        JobError, match=r"^job ring: image: missing; a cluster runs containers, so give it in the job's file$"
    ):
        made(job(image=""))
    with pytest.raises(
        JobError, match=r"^job ring: slices: a PyTorchJob's master stands beside its workers; use a Job$"
    ):
        made(job(slices=[{"layer": 3, "size": 2}]), "pytorchjob")


WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
LIKE_OTHERS = """
1e-5 1e3 12e4567 1E+2 0 7 -1 +1 1.5 .5 -.5 1. 1_000 0o17 0b11 0x1F 0123 089 22:30 1:2:3.5 -1:30 1.10 1e e1 ~ << =
.inf -.Inf +.INF .nan .NaN inf nan None 2001-01-01 2001-12-14t21:59:43.10-05:00 --- ... ? python3 a/b:1
"""
TEXTS = [
    *(form(word) for word in WORDS for form in (str, str.title, str.upper)),
    *LIKE_OTHERS.split(),
    *(
        "",
        " ",
        "a: b",
        "a #b",
        "- a",
        "? a",
        "[a]",
        "{a}",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a`",
        "'a'",
        '"a"',
        "a:",
        "a ",
    ),
    *("a\nb", "a\tb", "\t", "\x85", "\u2028", "\ufeff", "\xe9", "\U0001f600"),
]
TEXT = (
    st.sampled_from(TEXTS)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"]))
    | st.text("0123456789+-.eE_:xob~yn", max_size=8)
)


def yaml_1_2(content: str) -> list[Any]:
    """What YAML 1.2 reads."""
    ruamel = pytest.importorskip("ruamel.yaml", reason="reads YAML 1.2; make setup installs it")
    return list(ruamel.YAML(typ="safe", pure=True).load_all(StringIO(content)))


@given(texts=st.lists(TEXT, max_size=4))
@pytest.mark.parametrize("read", [yaml.safe_load_all, yaml_1_2], ids=["1.1", "1.2"])
def test_dump__any_text_is_a_text_to_every_reader(read: Any, texts: list[str]) -> None:
    documents = [{"command": texts, "env": {text: text for text in texts}, "count": 1, "flag": True}]
    assert list(read(dump(documents))) == documents


OTHERS = re.compile(
    r"""(?ix) y|n|yes|no|on|off|true|false              # https://yaml.org/type/bool.html
    | ~|null| | [-+]?\.(inf|nan) | <<|=               # null, float, merge, value.html; YAML 1.2.2, section 10.3.2
    | [-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?    # base 60: int.html, float.html
    | [-+]?0[xob]?[0-9a-f_]+                           # int.html; 0o: 1.2 and go-yaml, which has 0b, too
    | [-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)(e[-+]?[0-9]+)?  # 1.2: no sign, no dot needed before an exponent
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*                # timestamp.html; go-yaml's allowedTimestampFormats
    """
)


@given(text=TEXT)
def test_dump__what_has_no_quotes_is_like_nothing_else(text: str) -> None:
    """By the three specifications, whatever readers are installed."""
    (line, *_) = dump([{"a": text}]).removeprefix("---\n").splitlines()
    assert line != f"a: {text}" or not OTHERS.fullmatch(text)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, whose reader is Go's, is not installed")
def test_dump__a_text_is_a_text_to_kubectl() -> None:
    containers = [
        {"name": "a", "image": "b", "command": TEXTS, "env": [{"name": "A", "value": text} for text in TEXTS]}
    ]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": containers}}
    command = ["kubectl", "annotate", "--local", "-f", "-", "a=b", "-o", "json"]
    read = subprocess.run(command, input=dump([pod]), capture_output=True, text=True, check=True).stdout
    assert json.loads(read)["spec"]["containers"][0] | {"resources": {}} == {**containers[0], "resources": {}}
