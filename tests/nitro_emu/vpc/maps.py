"""Maps for tests: as YAML's content, with changes."""

from __future__ import annotations

import base64
from typing import Any

from nitro_emu.vpc.model import VpcMap, checked_untrusted
from nitro_emu.vpc.rules import Mapping, VpcInterface

ALL_WITH_EFA = {"protocol": "all", "group": "efa"}


def efa_group() -> dict[str, Any]:
    return {"ingress": [dict(ALL_WITH_EFA)], "egress": [dict(ALL_WITH_EFA)]}


def public_key(number: int) -> str:
    return base64.b64encode(number.to_bytes(32, "big")).decode()


def card(number: int, **changes: object) -> dict[str, Any]:
    fields = {"address": f"10.0.{number}.1", "public_key": public_key(number), "push": f"/run/card-{number}.sock"}
    return {**fields, **changes}


def interface(address: str, **changes: object) -> dict[str, Any]:
    return {"address": address, "subnet": "a", "groups": ["efa"], "card": "card-1", "port": 19875, **changes}


def vpc(number: int, *, subnets: dict[str, str] | None = None, **changes: object) -> dict[str, Any]:
    return {"id": number, "subnets": subnets or {"a": "172.31.0.0/24"}, "groups": {"efa": efa_group()}, **changes}


def two_vpcs() -> dict[str, Any]:
    """Two tenants with the same addresses, on the same two cards."""
    return {
        "lifetime_s": 60,
        "cards": {"card-1": card(1), "card-2": card(2)},
        "vpcs": {
            name: vpc(
                number,
                interfaces={
                    f"{name}-1": interface("172.31.0.5", port=19874 + number),
                    f"{name}-2": interface("172.31.0.6", card="card-2", port=19874 + number),
                },
            )
            for number, name in ((1, "red"), (2, "green"))
        },
    }


def peered_vpcs() -> dict[str, Any]:
    """The same, peered, so with other addresses."""
    content = two_vpcs()
    green = content["vpcs"]["green"]
    green["subnets"] = {"a": "172.31.1.0/24"}
    for number in (1, 2):
        green["interfaces"][f"green-{number}"]["address"] = f"172.31.1.{4 + number}"
    content["peerings"] = [["red", "green"]]
    return content


def map_of(content: dict[str, Any]) -> VpcMap:
    return checked_untrusted(content)


def mapping_of(content: dict[str, Any], *, version: int = 1) -> Mapping:
    return Mapping(map_of(content), version=version)


def interface_of(mapping: Mapping, name: str) -> VpcInterface:
    return next(each for each in mapping.interfaces if each.name == name)


def _every_key() -> dict[str, Any]:
    content = peered_vpcs()
    content["lifetime_s"] = 0.5
    content["cards"]["card-1"].update(region="eu-1", push="[fd00::1]:19800")
    content["cards"]["card-2"].update(region="eu-1", push="control.example:19800")
    content["vpcs"]["red"]["subnets"]["six"] = "fd00::/64"
    content["vpcs"]["red"]["interfaces"]["red-6"] = interface("fd00::9", subnet="six", port=7, groups=["efa", "web"])
    content["vpcs"]["red"]["groups"]["web"] = {
        "ingress": [
            {"protocol": "tcp", "ports": 443, "cidr": "0.0.0.0/0"},
            {"protocol": "udp", "ports": "1-2", "group": "green/efa"},
            {"protocol": "icmp", "cidr": "fd00::/8"},
        ]
    }
    return content


EVERY_KEY = _every_key()
"""A map in which every key of the file is set."""


def allows(
    mapping: Mapping, source: VpcInterface, destination: VpcInterface, *, protocol: str, port: int | None = None
) -> bool:
    """Whether IP traffic that source begins is allowed."""
    return (
        mapping.unreachable(source, destination) is None
        and mapping.permits(source, "egress", destination, protocol=protocol, port=port)
        and mapping.permits(destination, "ingress", source, protocol=protocol, port=port)
    )
