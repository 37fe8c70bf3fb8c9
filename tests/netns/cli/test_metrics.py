"""`srd-lab metrics`: of a lab, printed and served, and what clients cannot do to it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics import parser

from netns.cli import main
from netns.faults.faults import fail
from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.root


def families(text: str) -> dict[str, Any]:
    read: Any = parser.text_string_to_metric_families
    return {family.name: family for family in read(text)}


def test_metrics__printed(lab_name: str) -> None:
    with Lab.up(leaf_spine(name=lab_name, spines=1, shape=Shape(delay_us=100)), backend="relay") as lab:
        fail(lab, "leaf2-spine1")
        result = CliRunner().invoke(main, ["metrics", "--lab", lab.name, "--prometheus"])
        assert result.exit_code == 0, result.output
        found = families(result.output)
        up = {sample.labels["link"]: sample.value for sample in found["netns_link_up"].samples}
        assert up["leaf2-spine1"] == 0
        assert up["leaf1-spine1"] == 1
        for name in ("packets", "bytes", "dropped"):
            family = found[f"netns_link_{name}"]
            assert family.type == "counter"
            directions = {sample.labels["direction"] for sample in family.samples}
            assert {"h1>leaf1", "leaf1>h1", "leaf2>spine1", "spine1>leaf2"} < directions
        assert found["netns_relay_cpu_seconds"].samples[0].value > 0
        assert found["netns_relay_tap_drops"].samples[0].value == 0


def test_metrics__served_until_the_lab_is_down(lab_name: str) -> None:
    argv = [sys.executable, "-m", "netns", "metrics", "--lab", lab_name, "--serve", "-p", "0"]
    with (
        Lab.up(leaf_spine(name=lab_name, spines=1)),
        subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as served,
    ):
        assert served.stderr is not None
        url = served.stderr.readline().split()[-1]
        host, port = url.split("/")[2].split(":")
        for request in (b"", b"\0" * 99, b"GET / HTTP/1.1\r\n\r\n", b"X" * 100_000):
            with socket.create_connection((host, int(port))) as client:
                client.sendall(request)
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:  # noqa: S310 - of this test
            assert page.headers["Content-Type"].startswith("text/plain")
            assert b"# TYPE netns_link_packets_total counter" in page.read()
        served.send_signal(signal.SIGTERM)
        assert served.wait(PATIENCE_S) == 0
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        assert served.stderr.readline().startswith("srd-lab: ")
        assert served.wait(PATIENCE_S) == 1


def test_metrics__a_port_that_is_taken_bad_flow(lab_name: str) -> None:
    with Lab.up(leaf_spine(name=lab_name, spines=1)), socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(main, ["metrics", "--lab", lab_name, "--serve", "-p", port])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"srd-lab: --bind, --port: 127.0.0.1:{port}: cannot listen (")


def test_metrics__both_forms_bad_flow() -> None:
    result = CliRunner().invoke(main, ["metrics", "--json", "--prometheus"])
    assert (result.exit_code, "exclude each other" in result.output) == (2, True)
