"""rdma-core's own tests of SRD and of efadv pass on a card, unmodified; see runner.py."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from nitro_emu.efa.verbs import Context
from tests.nitro_emu.cards import running_card
from tests.nitro_emu.processes import loopback_vf
from tests.programs import run_to_end

ROOT: Final = Path(__file__).resolve().parents[4]
RUNNER: Final = Path(__file__).with_name("runner.py")
FETCH: Final = ROOT / "scripts" / "fetch-rdma-core-tests"
TIMEOUT_S: Final = 500
CURRENT: Final = "sid"
LOSSY: Final = Shape(delay_us=100, rate_bps=1_000_000_000, loss_percent=1)
SEED: Final = 18
KNOWN: Final = {
    "CqEventsSRDTestCase.test_cq_events_srd",
    "QPSRDTestCase.test_full_rq_bad_flow",
    "QPSRDTestCase.test_full_sq_bad_flow",
    "QPSRDTestCase.test_post_receive_qp_state_bad_flow",
    "QPSRDTestCase.test_post_send_qp_state_bad_flow",
    "QPSRDTestCase.test_qp_ex_srd_old_send",
    "QPSRDTestCase.test_qp_ex_srd_old_send_imm",
    "QPSRDTestCase.test_qp_ex_srd_rdma_read",
    "QPSRDTestCase.test_qp_ex_srd_rdma_unsolicited_write_with_imm",
    "QPSRDTestCase.test_qp_ex_srd_rdma_write",
    "QPSRDTestCase.test_qp_ex_srd_rdma_write_with_imm",
    "QPSRDTestCase.test_qp_ex_srd_send",
    "QPSRDTestCase.test_qp_ex_srd_send_imm",
    "QPSRDTestCase.test_qp_ex_srd_zero_size",
    "QPSRDTestCase.test_rq_with_larger_sgl_bad_flow",
    "EfaAHTest.test_efadv_query_ah",
    "EfaCqTest.test_dv_cq_ex_with_sgid",
    "EfaMRTest.test_efadv_query_mr",
    "EfaQPExTest.test_efadv_create_qp_ex",
    "EfaQPTest.test_efadv_create_driver_qp",
    "EfaQueryDeviceTest.test_efadv_query",
}
"""The tests of rdma-core 65. Later ones may test what these cards do not have, and may be skipped."""
AT_LEAST: Final = {"": 16, CURRENT: 21}
"""How many of them a release has: Debian 12's has 16."""


def folder_of(suite: str) -> Path:
    """Return a folder with rdma-core's tests: that of the environment, or of a Debian release."""
    if folder := os.environ.get("RDMA_CORE_TESTS"):
        return Path(folder)
    fetched = run_to_end([FETCH, *([suite] if suite else [])], within_s=TIMEOUT_S)
    assert fetched.returncode == 0, fetched.stderr
    return Path(fetched.stdout.strip())


def check(folder: Path, *, card_directory: Path, options: tuple[str, ...] = (), at_least: int) -> None:
    """Run all tests of a folder on the devices in a directory."""
    result = run_to_end(
        [sys.executable, str(RUNNER), str(folder), *options],
        env={**os.environ, "NITRO_CARD_DIR": str(card_directory)},
        within_s=TIMEOUT_S,
    )
    output = result.stdout + result.stderr
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    assert not found["failures"], output
    assert not found["errors"], output
    skipped = {name for name in found["skipped"] if ".".join(name.split(".")[-2:]) in KNOWN}
    assert not skipped, output
    assert found["run"] >= at_least, output


@pytest.mark.compiled
@pytest.mark.parametrize(
    "suite", [pytest.param("", id="debian"), pytest.param(CURRENT, id="current", marks=pytest.mark.long)]
)
def test_both_players_on_one_card(tmp_path: Path, suite: str) -> None:
    with running_card(tmp_path / "card", vfs=[loopback_vf()]) as card:
        check(folder_of(suite), card_directory=card.run_dir, at_least=AT_LEAST[suite])


@pytest.mark.root
@pytest.mark.lab(leaf_spine(shape=LOSSY, seed=SEED), backend="relay")
@pytest.mark.long
def test_the_players_on_two_cards_across_a_lossy_fabric(tmp_path: Path, lab: Lab) -> None:
    def vf(host: str) -> str:
        return f"name: efa_0, address: {lab.address(host)}, security: {{mode: plain}}"

    folder = folder_of(CURRENT)
    with (
        running_card(tmp_path / "a", vfs=[vf("h1")], prefix=lab.command("h1", [])) as one,
        running_card(tmp_path / "b", vfs=[vf("h2")], prefix=lab.command("h2", [])) as two,
    ):
        devices = {"efa_0": one, "efa_1": two}
        directory = tmp_path / "both"
        directory.mkdir()
        for name, card in devices.items():
            (directory / f"{name}.sock").symlink_to(card.socket("efa_0"))
        options = ("--server-device", "efa_1")
        check(folder, card_directory=directory, options=options, at_least=AT_LEAST[CURRENT])
        for device in devices:
            with Context(device, directory=directory) as context:
                assert context.query_stats()["retrans_pkts"], f"{device} has lost nothing"
