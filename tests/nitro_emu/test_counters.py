"""nitro_emu.counters: the names are EFA's."""

from __future__ import annotations

from dataclasses import asdict

from nitro_emu.counters import DeviceCounters, PortCounters

PORT = (
    "tx_bytes tx_pkts rx_bytes rx_pkts rx_drops send_bytes send_wrs recv_bytes recv_wrs rdma_read_wrs rdma_read_bytes "
    "rdma_read_wr_err rdma_read_resp_bytes rdma_write_wrs rdma_write_bytes rdma_write_wr_err rdma_write_recv_bytes "
    "retrans_bytes retrans_pkts retrans_timeout_events unresponsive_remote_events impaired_remote_conn_events"
)
DEVICE = (
    "submitted_cmds completed_cmds cmds_err no_completion_cmds keep_alive_rcvd alloc_pd_err create_qp_err "
    "create_cq_err reg_mr_err alloc_ucontext_err create_ah_err mmap_err"
)


def test_names_are_those_of_the_drivers_hw_counters() -> None:
    assert list(asdict(PortCounters())) == PORT.split()
    assert list(asdict(DeviceCounters())) == DEVICE.split()
