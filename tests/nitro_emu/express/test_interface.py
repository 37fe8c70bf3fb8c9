"""nitro_emu.express.interface: where a tenant's interface is made."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from netns.backends.relay.tap import inside
from nitro_emu.errors import CardError
from nitro_emu.express.config import InterfaceFields
from nitro_emu.express.interface import open_interface
from tests.srd.tunnel.cable import ip, namespaces


def fields(**more: Any) -> InterfaceFields:
    return InterfaceFields.model_validate({"subnet": "172.31.0.0/16", **more})


@pytest.mark.root
def test_interface__is_in_the_named_namespace_and_ends_with_its_descriptors() -> None:
    with namespaces(1) as (netns,):
        with open_interface(fields(netns=netns, mtu=1400, routes=["10.9.0.0/16"]), name="ena_0", address="172.31.0.5"):
            assert "mtu 1400" in ip("link", "show", "ena_0", netns=netns)
            assert "10.9.0.0/16 dev ena_0" in ip("route", netns=netns)
            assert "ena_0" not in {name for _, name in socket.if_nameindex()}
        assert "ena_0" not in ip("link", netns=netns)


@pytest.mark.root
def test_interface__is_in_the_card_s_own_namespace_by_default() -> None:
    with namespaces(1) as (netns,), inside(netns):
        subnet = fields(subnet="fd09::/64", name="eth9")
        with open_interface(subnet, name="ena_0", address="fd09::5") as tun:
            assert (tun.name, socket.if_nametoindex("eth9")) == ("eth9", tun.index)
            assert "inet6 fd09::5/64" in ip("address", "show", "eth9", netns=netns)


@pytest.mark.parametrize("netns", ["missing-ns", 999_999_999])
def test_namespace__that_is_not_there_is_one_line(netns: str | int) -> None:
    with pytest.raises(CardError, match=f"interface.netns: {netns}: .*No such file or directory"):
        open_interface(fields(netns=netns), name="ena_0", address="172.31.0.5")


@pytest.mark.root
def test_interface__of_a_name_that_is_taken_is_one_line() -> None:
    with namespaces(1) as (netns,), pytest.raises(CardError, match="ena_0: cannot make the interface lo"):
        open_interface(fields(netns=netns, name="lo"), name="ena_0", address="172.31.0.5")
