"""The congestion controllers by name: the values of `ProtocolConfig.controller`."""

from __future__ import annotations

from collections.abc import Callable

from srd.proto.congestion.base import Controller, Fixed
from srd.proto.congestion.delay import MajorityDelay
from srd.proto.congestion.swift import Swift

CONTROLLERS: dict[str, Callable[..., Controller]] = {
    "majority-delay": MajorityDelay,
    "swift": Swift,
    "fixed": Fixed,
}
