"""The connection manager's enumerations under their old name; see `pyverbs.enums`."""

from __future__ import annotations

from pyverbs.librdmacm_enums import rdma_port_space

RDMA_PS_IPOIB = rdma_port_space.RDMA_PS_IPOIB
RDMA_PS_TCP = rdma_port_space.RDMA_PS_TCP
RDMA_PS_UDP = rdma_port_space.RDMA_PS_UDP
RDMA_PS_IB = rdma_port_space.RDMA_PS_IB
