"""A volume's metrics as Prometheus reads them."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from netns.base.metrics import exposition
from nitro_emu.ebs.attachment import Attachment, AttachmentSettings, claimed
from nitro_emu.ebs.memory import MemoryDevice
from nitro_emu.ebs.metrics import VolumeCollector
from nitro_emu.ebs.request import BlockOperation
from nitro_emu.ebs.statistics import BOUNDS_US


async def test_counters_and_histograms(tmp_path: Path) -> None:
    settings = AttachmentSettings(name="vol-1", run_dir=tmp_path)
    device = MemoryDevice(1 << 20)
    with claimed(settings) as control:
        async with Attachment.open(settings, control=control, device=device) as attachment:
            done = attachment.front.statistics.by_command[BlockOperation.READ]
            for us in (20, 20, 100, 1e9):
                done.operations += 1
                done.bytes += 4096
                done.latency.add(us)
            text = exposition(VolumeCollector({"vol-1": attachment.counters()}), as_openmetrics=False)[1].decode()
    samples = {
        (sample.name, sample.labels.get("command"), sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["volume"] == "vol-1"
    }
    assert samples["ebs_operations_total", "read", None] == 4
    assert samples["ebs_bytes_total", "read", None] == 4 * 4096
    assert samples["ebs_errors_total", "read", None] == 0
    assert samples["ebs_clients", None, None] == 0
    assert samples["ebs_performance_exceeded_iops_seconds_total", None, None] == 0
    buckets = [samples["ebs_latency_seconds_bucket", "read", str(bound / 1e6)] for bound in BOUNDS_US]
    assert buckets == [0, 2, 2, *[3] * (len(BOUNDS_US) - 3)]
    assert samples["ebs_latency_seconds_bucket", "read", "+Inf"] == 4
    assert samples["ebs_latency_seconds_count", "read", None] == 4
    assert samples["ebs_latency_seconds_sum", "read", None] == 1e3 + 140e-6
