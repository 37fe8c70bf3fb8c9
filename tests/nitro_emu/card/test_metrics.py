"""nitro_emu.card.metrics: Prometheus' own parser reads what is written."""

from __future__ import annotations

from dataclasses import asdict

from prometheus_client.parser import text_string_to_metric_families

from nitro_emu.card.metrics import Stats, handler, metrics_text
from nitro_emu.counters import AllowanceCounters, DeviceCounters, PortCounters
from nitro_emu.ebs.request import BlockOperation
from nitro_emu.ebs.statistics import Statistics


def interface_stats() -> Stats:
    """Of a virtual function of kind ENA Express."""
    return {
        "ena": {"ena_srd_tx_pkts": 11, "tx_bytes": 12},
        "ena_state": {"ena_srd_mode": 3, "ena_srd_resource_utilization": 13, "flows": 14},
        "dropped": {"security_group": 15, "spoofed_source": 16},
        "allowance": asdict(AllowanceCounters(conntrack_allowance_exceeded=17)),
        "vpc": {"rx_forged": 18},
    }


def stats() -> Stats:
    return {
        "vfs": {
            name: {
                "port": asdict(PortCounters(tx_bytes=tx_bytes)),
                "device": asdict(DeviceCounters(cmds_err=3)),
                "qkey_viol": 4,
                "bytes_copied": 5,
                "resources": {"qps": 2, "cqs": 1},
                "allowance": asdict(AllowanceCounters(pps_allowance_exceeded=6)),
                "vpc": {"rx_forged": 7},
            }
            for name, tx_bytes in (("efa_0", 1 << 53), ("efa_1", 0))
        }
        | {"ena_0": interface_stats()},
        "alarms": {"forged-source": 8},
    }


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_counter_of_every_vf_is_there() -> None:
    read = samples(metrics_text(stats()))
    assert read["efa_tx_bytes_total", "efa_0"] == 1 << 53
    assert read["efa_tx_bytes_total", "efa_1"] == 0
    assert read["efa_cmds_err_total", "efa_0"] == 3
    assert read["efa_qkey_viol_total", "efa_0"] == 4
    assert read["efa_bytes_copied_total", "efa_1"] == 5
    assert read["efa_resources", "qps", "efa_0"] == 2
    assert read["ena_pps_allowance_exceeded_total", "efa_0"] == 6
    assert read["nitro_vpc_rx_forged_total", "efa_1"] == 7
    assert read["nitro_alarms_total", "forged-source"] == 8
    assert len({name for name, *_ in read if name.startswith(("efa_", "nitro_alarms"))}) == 22 + 12 + 3 + 1


def test_every_counter_of_an_interface_is_there() -> None:
    read = samples(metrics_text(stats()))
    of_interface = {name: value for (name, *labels), value in read.items() if "ena_0" in labels}
    assert of_interface == {
        "ena_srd_tx_pkts_total": 11,
        "ena_tx_bytes_total": 12,
        "ena_srd_mode": 3,
        "ena_srd_resource_utilization": 13,
        "nitro_flows": 14,
        "nitro_inner_drops_total": 16,
        "ena_bw_in_allowance_exceeded_total": 0,
        "ena_bw_out_allowance_exceeded_total": 0,
        "ena_pps_allowance_exceeded_total": 0,
        "ena_conntrack_allowance_exceeded_total": 17,
        "nitro_vpc_rx_forged_total": 18,
    }
    assert read["nitro_inner_drops_total", "security_group", "ena_0"] == 15


def volume_stats() -> Stats:
    """Of a virtual function of kind ebs."""
    statistics = Statistics()
    statistics.by_command[BlockOperation.WRITE].operations = 19
    return {
        "clients": 20,
        "exceeded_us": {"performance_exceeded_iops": 21_000_000, "performance_exceeded_tp": 0},
        **statistics.as_dict(),
    }


def test_volumes_are_there_beside_devices() -> None:
    read = samples(metrics_text({"vfs": {"vol_1": volume_stats(), "vol_2": volume_stats(), **stats()["vfs"]}}))
    for volume in ("vol_1", "vol_2"):
        assert read["ebs_operations_total", "write", volume] == 19
        assert read["ebs_clients", volume] == 20
        assert read["ebs_performance_exceeded_iops_seconds_total", volume] == 21
        assert read["ebs_latency_seconds_bucket", "write", "+Inf", volume] == 0
    assert read["efa_bytes_copied_total", "efa_1"] == 5


def test_card_without_vfs_has_no_samples() -> None:
    assert samples(metrics_text({"vfs": {}})) == {}


async def test_handler__answers_with_the_counters_of_now_in_the_format_asked_for() -> None:
    now = stats()
    answer = handler(lambda: now)
    now["vfs"]["efa_0"]["port"]["tx_bytes"] = 7
    for accept in ("text/plain", "application/openmetrics-text"):
        content_type, text = await answer(accept)
        assert content_type.startswith(accept)
        assert b'efa_tx_bytes_total{vf="efa_0"} 7.0' in text
