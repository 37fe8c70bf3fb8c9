"""Devices: how to find, open and query them."""

from __future__ import annotations

from dataclasses import dataclass, field

from nitro_emu.efa import verbs
from pyverbs.absent import Absent
from pyverbs.addr import GID
from pyverbs.base import PyverbsCM, PyverbsObject, translated
from pyverbs.libibverbs_enums import (
    IBV_LINK_LAYER_UNSPECIFIED,
    ibv_atomic_cap,
    ibv_gid_type_sysfs,
    ibv_mtu,
    ibv_port_state,
)

_VENDOR_ID = 0x1D0F
_PHYS_STATE_LINK_UP = 5
_FULL_PKEY = 0xFFFF


class FdArr(Absent):
    """Descriptors that child processes inherit: other vendors' devices have them."""


class Device(PyverbsObject):
    """A device that exists. `name` is bytes, as in pyverbs."""

    def __init__(self, name: str) -> None:
        self.name = name.encode()

    def __str__(self) -> str:
        """Return the name."""
        return f"Device {self.name.decode()}"


@dataclass(frozen=True, slots=True)
class DeviceAttr:
    """Limits of a device."""

    fw_ver: str
    node_guid: int
    vendor_id: int
    vendor_part_id: int
    max_qp: int
    max_qp_wr: int
    device_cap_flags: int
    max_sge: int
    max_cq: int
    max_cqe: int
    max_mr: int
    max_pd: int
    max_ah: int
    phys_port_cnt: int = 1
    atomic_caps: int = ibv_atomic_cap.IBV_ATOMIC_NONE
    max_srq: int = 0
    max_pkeys: int = 1


@dataclass(frozen=True, slots=True)
class ODPCaps:
    """On-demand paging: an EFA device has none."""

    general_caps: int = 0


@dataclass(frozen=True, slots=True)
class DeviceAttrEx:
    """Limits of a device, extended."""

    orig_attr: DeviceAttr
    odp_caps: ODPCaps = field(default_factory=ODPCaps)
    device_cap_flags_ex: int = 0
    raw_packet_caps: int = 0


@dataclass(frozen=True, slots=True)
class PortAttr:
    """The only port of a device."""

    max_msg_sz: int
    state: int = ibv_port_state.IBV_PORT_ACTIVE
    max_mtu: int = ibv_mtu.IBV_MTU_4096
    active_mtu: int = ibv_mtu.IBV_MTU_4096
    gid_tbl_len: int = 1
    pkey_tbl_len: int = 1
    lmc: int = 1
    lid: int = 0
    sm_lid: int = 0
    phys_state: int = _PHYS_STATE_LINK_UP
    link_layer: int = IBV_LINK_LAYER_UNSPECIFIED
    flags: int = 0


class Context(PyverbsCM):
    """An open device. Closing it closes all that was created from it."""

    def __init__(self, *, name: str | bytes = "") -> None:
        self.name = name.decode() if isinstance(name, bytes) else name
        with translated(f"Failed to open device {self.name}"):
            self.context = verbs.Context(self.name)
        super().__init__(self.context)

    def query_device(self) -> DeviceAttr:
        """Return the limits."""
        attributes = self.context.attributes
        queue = attributes.queue
        return DeviceAttr(
            fw_ver="0.0.0.0",  # noqa: S104 - four numbers, no address
            node_guid=int.from_bytes(attributes.gid[8:], "big"),
            vendor_id=_VENDOR_ID,
            vendor_part_id=attributes.vendor_part_id,
            max_qp=queue.max_qp,
            max_qp_wr=min(queue.max_sq_depth, queue.max_rq_depth),
            device_cap_flags=0,
            max_sge=min(queue.max_wr_send_sges, queue.max_wr_recv_sges),
            max_cq=queue.max_cq,
            max_cqe=queue.max_cq_depth,
            max_mr=queue.max_mr,
            max_pd=queue.max_pd,
            max_ah=queue.max_ah,
        )

    def query_device_ex(self, ex_input: object = None) -> DeviceAttrEx:  # noqa: ARG002 - pyverbs' signature
        """Return the limits, extended."""
        return DeviceAttrEx(self.query_device())

    def query_port(self, port_num: int) -> PortAttr:  # noqa: ARG002 - there is one
        """Return the port's attributes."""
        return PortAttr(max_msg_sz=self.context.attributes.mtu_bytes)

    def query_gid(self, port_num: int, index: int) -> GID:  # noqa: ARG002 - there is one
        """Return the device's GID, whatever the index."""
        return GID.of(self.context.attributes.gid)

    def query_gid_type(self, port_num: int, index: int) -> int:  # noqa: ARG002 - there is one
        """Return the kind of the GID."""
        return ibv_gid_type_sysfs.IBV_GID_TYPE_SYSFS_IB_ROCE_V1

    def query_pkey(self, port_num: int, index: int) -> int:  # noqa: ARG002 - there is one
        """Return the only partition key."""
        return _FULL_PKEY


def get_device_list() -> list[Device]:
    """Return the devices of the card."""
    return [Device(name) for name in verbs.device_names()]
