"""netns.cli.placement: both commands as a user runs them, one-line errors and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from netns.inventory.nodes import layer_label
from tests.netns.cli.srd_lab import one_line, srd_lab

FABRIC = "name: demo\nleaf_spine: {leaves: 3, spines: 2, hosts_per_leaf: 2}\n"
JOB = "name: ring\nranks: 4\ncommand: [x]\nimage: example/ring:1\n"


@pytest.fixture
def fabric(tmp_path: Path) -> str:
    path = tmp_path / "demo.yaml"
    path.write_text(FABRIC)
    return str(path)


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return str(path)


def output(*arguments: str) -> str:
    done = srd_lab(*arguments)
    assert done.returncode == 0, done
    return done.stdout


def error(*arguments: str, status: int) -> str:
    return one_line(srd_lab(*arguments), status=status)


def test_topology__table_json_and_mermaid(fabric: str) -> None:
    assert output("topology", fabric).startswith("6 hosts in 1 of layer 1, 1 of layer 2, 3 of layer 3\n")
    assert output("topology", fabric, "--table") == output("topology", fabric)
    assert len(json.loads(output("topology", fabric, "--json"))["shared"][layer_label(3)]) == 3
    assert output("topology", fabric, "--mermaid").startswith("flowchart TD\n")
    assert output("topology", "reference").startswith("2 hosts in ")


@pytest.mark.parametrize("shape", ["ec2", "kubernetes"])
def test_topology__export_and_import(tmp_path: Path, fabric: str, shape: str) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(output("topology", fabric, "--export", shape))
    assert output("topology", str(path)) == output("topology", fabric)


def test_topology__page(tmp_path: Path, fabric: str) -> None:
    page = tmp_path / "demo.html"
    assert output("topology", fabric, "--html", str(page)) == f"wrote {page}\n"
    assert "<title>Topology of demo.yaml</title>" in page.read_text()
    assert ">spine1</text>" in page.read_text()
    assert ">spine2</text>" in page.read_text()
    lost = tmp_path / "none" / "demo.html"
    assert error("topology", fabric, "--html", str(lost), status=1) == f"{lost}: No such file or directory"


def test_place__text_json_and_hostfile(fabric: str, job: str) -> None:
    command = ("place", job, "--topology", fabric)
    assert output(*command).startswith("job ring: 4 ranks on 4 hosts, all in layer 2 spine1-spine2\n")
    assert json.loads(output(*command, "--json"))["hosts"] == ["h1", "h2", "h3", "h4"]
    assert output(*command, "--emit", "hostfile") == "h1 slots=1\nh2 slots=1\nh3 slots=1\nh4 slots=1\n"
    required = output(*command, "--required-topology", "3", "--ranks-per-host", "2")
    assert required.startswith("job ring: 4 ranks on 2 hosts, all in layer 3 leaf1\n")


def test_place__options_that_are_repeated_are_all_used(tmp_path: Path, fabric: str, job: str) -> None:
    command = ("place", job, "--topology", fabric)
    current = tmp_path / "current.json"
    current.write_text(output(*command, "--json"))
    replaced = (*command, "--current", str(current), "--replace", "h1", "--replace", "h2")
    assert json.loads(output(*replaced, "--json"))["hosts"] == ["h5", "h6", "h3", "h4"]
    gates = ("--feature-gates", "TASNoGate=true", "--feature-gates", "TASProfileMixed=false")
    assert "'TASNoGate=true' is not GATE=true or GATE=false with one of TAS" in srd_lab(*command, *gates).stderr
    both = ("--preferred-topology", "3", "--feature-gates", "TASBalancedPlacement=true,TASProfileMixed=false")
    assert output(*command, *both, "--emit", "hostfile").count("slots=1") == 4
    assert (
        error(*replaced, "--ranks-per-host", "2", "--replace", "h9", status=2) == "job ring: h9 runs none of its ranks"
    )


def test_place__manifests_carry_the_option(fabric: str, job: str) -> None:
    command = ("place", job, "--topology", fabric, "--preferred-topology", "network-node-layer-3", "--emit", "kueue")
    *_, last = yaml.safe_load_all(output(*command))
    annotations = last["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"kueue.x-k8s.io/podset-preferred-topology": layer_label(3)}
    *_, last = yaml.safe_load_all(output(*command, "--kind", "pytorchjob"))
    assert last["kind"] == "PyTorchJob"


def test_place__notes_go_to_stderr(tmp_path: Path, fabric: str) -> None:
    path = tmp_path / "hungry.yaml"
    path.write_text(JOB + "resources: {cpu: 1}\n")
    done = srd_lab("place", str(path), "--topology", fabric, "--emit", "hostfile")
    assert done.stderr == "note: the nodes report no allocatable resources; not checked: cpu\n"
    assert done.stdout.startswith("h1 slots=1\n")


def test_nodes_without_labels(tmp_path: Path, fabric: str, job: str) -> None:
    document = json.loads(output("topology", fabric, "--export", "kubernetes"))
    document["items"].append({"metadata": {"name": "control", "labels": {"kubernetes.io/hostname": "control"}}})
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(document))
    for command in (("topology", str(path)), ("place", job, "--topology", str(path))):
        assert error(*command, status=2).startswith(f"node control: has no label {layer_label(1)}; label it, or leave")
        done = srd_lab(*command, "--skip-unlabelled")
        assert (done.returncode, done.stderr) == (0, "note: left out, without network-node layers: control\n")


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (JOB, ("--required-topology", ""), "--required-topology: '' is no layer"),
        (JOB.replace("image", "imago"), (), "imago: no such key"),
    ],
)
def test_place__bad_flow(tmp_path: Path, fabric: str, text: str, arguments: tuple[str, ...], message: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    line = error("place", str(path), "--topology", fabric, *arguments, status=2)
    assert line.removeprefix(f"{path}: ").startswith(message)


@pytest.mark.parametrize(
    "arguments",
    [
        ("place",),
        ("place", "x"),
        ("topology",),
        ("topology", "x", "--export", "azure"),
        ("place", "JOB", "--topology", "reference", "--required-topology", "1", "--preferred-topology", "2"),
        ("place", "JOB", "--topology", "reference", "--ranks-per-host", "0"),
        ("place", "JOB", "--topology", "reference", "--replace", "h1"),
    ],
)
def test_usage__is_status_2(job: str, arguments: tuple[str, ...]) -> None:
    done = srd_lab(*(job if argument == "JOB" else argument for argument in arguments))
    assert done.returncode == 2
    assert done.stderr.startswith("srd-lab: ")
    assert done.stderr.count("\n") == 1


def test_place__thousands_of_ranks_print_no_matrix_unless_asked(tmp_path: Path) -> None:
    instances = [
        {"InstanceId": f"i-{number:04}", "NetworkNodes": [f"a{number // 512}", f"b{number // 64}", f"c{number // 16}"]}
        for number in range(2000)
    ]
    nodes, job = tmp_path / "nodes.json", tmp_path / "job.yaml"
    nodes.write_text(json.dumps({"Instances": instances}))
    job.write_text(JOB.replace("4", "2000"))
    printed = output("place", str(job), "--topology", str(nodes), "--json")
    placement = json.loads(printed)
    assert len(printed) < 200_000
    assert (placement["hops"], len(placement["hosts"])) == (None, 2000)
    assert sum(placement["pairs_by_hops"].values()) == 2000 * 1999 // 2
    asked = output("place", str(job), "--topology", str(nodes), "--json", "--hops")
    assert len(asked) < 9_000_000, "two bytes for each pair"
    row = json.loads(asked)["hops"][0]
    assert (row[0], row[1], row[16], row[64], row[512]) == (0, 1, 3, 5, 7)
    assert output("place", str(job), "--topology", str(nodes)).splitlines()[-4].startswith("  1: ")


POD = {
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"nodeName": "h1", "containers": [{"resources": {"requests": {"cpu": "1500m"}}}]},
}


@pytest.fixture
def cluster(tmp_path: Path, fabric: str) -> str:
    document = json.loads(output("topology", fabric, "--export", "kubernetes"))
    for item in document["items"]:
        item["status"]["allocatable"] = {"cpu": "2", "pods": "10"}
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_place__beside_the_pods_that_run(tmp_path: Path, cluster: str) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB.replace("4", "2") + "resources: {cpu: 1}\n")
    command = ("place", str(job), "--topology", cluster, "--required-topology", "3", "--emit", "hostfile")
    done = srd_lab(*command)
    assert done.stdout == "h1 slots=2\n"
    assert done.stderr.startswith(f"note: the pods that run in {cluster} are not given, so it counts as empty")
    pods = tmp_path / "pods.json"
    pods.write_text(json.dumps({"kind": "List", "items": [POD]}))
    done = srd_lab(*command, "--pods", str(pods))
    assert (done.stdout, done.stderr) == ("h2 slots=2\n", "")


def test_place__nodes_and_pods_of_one_file(tmp_path: Path, cluster: str) -> None:
    """As `kubectl get nodes,pods -o json` prints them."""
    document = json.loads(Path(cluster).read_text())
    document["items"].insert(0, POD)
    both = tmp_path / "both.json"
    both.write_text(json.dumps(document))
    job = tmp_path / "job.yaml"
    job.write_text(JOB.replace("4", "2") + "resources: {cpu: 1}\n")
    command = ("place", str(job), "--topology", str(both), "--pods", str(both), "--emit", "hostfile")
    assert output(*command) == "h2 slots=2\n"


def test_place__a_host_is_replaced(tmp_path: Path, fabric: str, job: str) -> None:
    current = tmp_path / "current.json"
    current.write_text(output("place", job, "--topology", fabric, "--json"))
    command = ("place", job, "--topology", fabric, "--current", str(current), "--replace")
    assert output(*command, "h2", "--emit", "hostfile") == "h1 slots=1\nh5 slots=1\nh3 slots=1\nh4 slots=1\n"
    assert error(*command, "h9", status=2) == "job ring: h9 runs none of its ranks"
    current.write_text("{}")
    assert error(*command, "h2", status=2).startswith(f"{current}: holds no placement; give the output of")
