"""The enumerations of librdmacm that tests name. An EFA device has no connection manager."""

# ruff: noqa: N801, D101 - libibverbs' names, and its documentation

from __future__ import annotations

from enum import IntEnum


class rdma_port_space(IntEnum):
    RDMA_PS_IPOIB = 2
    RDMA_PS_TCP = 262
    RDMA_PS_UDP = 273
    RDMA_PS_IB = 319
