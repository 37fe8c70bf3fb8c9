"""A virtual function's counters, with the names that EFA's driver gives them in Linux.

There they are files: ports/1/hw_counters/NAME and hw_counters/NAME in /sys/class/infiniband/DEVICE. All of them only
grow, from 0 at the start of the card. Bytes are those of payload, without headers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PortCounters:
    """What a port has sent and received. A work request (WR) is counted when it completes, unless a field differs."""

    tx_bytes: int = 0
    """Bytes sent: of sends, writes and responses to reads."""

    tx_pkts: int = 0
    """Packets sent with them."""

    rx_bytes: int = 0
    """Bytes received, likewise."""

    rx_pkts: int = 0
    """Packets received with them."""

    rx_drops: int = 0
    """Packets received and dropped: no memory for them, or refused."""

    send_bytes: int = 0
    """Bytes of the sends that completed in success."""

    send_wrs: int = 0
    """Sends that completed in success."""

    recv_bytes: int = 0
    """Bytes of the messages received into posted buffers."""

    recv_wrs: int = 0
    """Receive requests that completed: posted buffers that a message, or a write with immediate, consumed."""

    rdma_read_wrs: int = 0
    """Reads that completed in success."""

    rdma_read_bytes: int = 0
    """Bytes that they fetched."""

    rdma_read_wr_err: int = 0
    """Reads that completed in error."""

    rdma_read_resp_bytes: int = 0
    """Bytes sent in response to reads of others."""

    rdma_write_wrs: int = 0
    """Writes that completed in success."""

    rdma_write_bytes: int = 0
    """Bytes that they wrote."""

    rdma_write_wr_err: int = 0
    """Writes that completed in error."""

    rdma_write_recv_bytes: int = 0
    """Bytes that others wrote to registered memory here."""

    retrans_bytes: int = 0
    """Bytes retransmitted."""

    retrans_pkts: int = 0
    """Packets retransmitted."""

    retrans_timeout_events: int = 0
    """Timeouts of a path, after which packets are retransmitted on another one."""

    unresponsive_remote_events: int = 0
    """Times that a remote endpoint was declared unresponsive, for which the driver raises no event."""

    impaired_remote_conn_events: int = 0
    """Times that a path to a remote endpoint was quarantined: the connection works, with reduced throughput."""


@dataclass(slots=True)
class DeviceCounters:
    """What the driver has asked of the device. Errors of commands are counted by what was asked for."""

    submitted_cmds: int = 0
    """Admin commands submitted."""

    completed_cmds: int = 0
    """Admin commands completed, in success or in error."""

    cmds_err: int = 0
    """Admin commands completed in error."""

    no_completion_cmds: int = 0
    """Admin commands without a completion in time. The card answers each at once, so a program that does not read its
    answers is the only cause."""

    keep_alive_rcvd: int = 0
    """Keep-alive events received. The driver resets a device that stops sending them."""

    alloc_pd_err: int = 0
    """Protection domains that were not allocated."""

    create_qp_err: int = 0
    """Queue pairs that were not created."""

    create_cq_err: int = 0
    """Completion queues that were not created."""

    reg_mr_err: int = 0
    """Memory that was not registered."""

    alloc_ucontext_err: int = 0
    """Programs that could not open the device: too many, or not allowed to."""

    create_ah_err: int = 0
    """Address handles that were not created."""

    mmap_err: int = 0
    """Rings that were not mapped; for the card: not handed out, for want of memory or descriptors."""


@dataclass(slots=True)
class AllowanceCounters:
    """Packets queued or dropped because a VF had used up its allowance; ENA's names (`ethtool -S`)."""

    bw_in_allowance_exceeded: int = 0
    """Received packets, by the bandwidth."""

    bw_out_allowance_exceeded: int = 0
    """Packets to send, by the bandwidth."""

    pps_allowance_exceeded: int = 0
    """By the packets per second, in both directions."""

    conntrack_allowance_exceeded: int = 0
    """Packets dropped because their flow would have been one too many to track; only of kind ena-express."""


@dataclass(slots=True)
class SecurityCounters:
    """Packets of strangers with the context of an open peer, which were dropped. Neither EFA nor ENA counts them."""

    forged_pkts: int = 0
    """They were not authentic."""

    replayed_pkts: int = 0
    """They were received before."""
