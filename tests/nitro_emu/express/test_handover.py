"""nitro_emu.express.handover: what a card leaves to the program that replaces it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nitro_emu.card.trust import CardTrust
from nitro_emu.errors import CardError, TrustError
from nitro_emu.express.config import ExpressConfig, InterfaceFields
from nitro_emu.express.handover import HANDOVER_FD, KeptInterface, leave_interfaces, take_interfaces
from nitro_emu.vpc.flows import Begin, SavedFlow

FLOWS = (
    SavedFlow(
        key=b"\x06key",
        begin=Begin(is_outbound=True, peer=bytes([172, 31, 0, 6]), protocol="tcp", port=80),
        idle_s=350.0,
        age_s=1.5,
        is_answered=True,
        fins=1,
    ),
    SavedFlow(
        key=b"f",
        begin=Begin(is_outbound=False, peer=bytes(16), protocol="udp", port=None),
        idle_s=30.0,
        age_s=0.0,
        is_answered=False,
        fins=0,
    ),
)


def vf(name: str = "ena_0", **interface: Any) -> ExpressConfig:
    return ExpressConfig(
        name=name,
        kind="ena-express",
        address="10.0.1.2",
        vpc="red",
        private_address="172.31.0.5",
        interface=InterfaceFields.model_validate({"subnet": "172.31.0.0/16", **interface}),
    )


def kept(config: ExpressConfig, *fds: int) -> KeptInterface:
    return KeptInterface(settings=config.kept_settings, fds=fds, index=7, flows=FLOWS)


def is_open(fd: int) -> bool:
    return Path(f"/proc/self/fd/{fd}").exists()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HANDOVER_FD, "")


def test_interface__is_taken_as_it_was_left_and_only_once() -> None:
    left = kept(vf(), 1000, 1001)
    leave_interfaces({"ena_0": left})
    number = int(os.environ[HANDOVER_FD])
    assert os.get_inheritable(number)
    assert take_interfaces([vf("efa_0"), vf(max_flows=64)]) == {"ena_0": left}, "flows are the card's own"
    assert not is_open(number)
    assert take_interfaces([vf()]) == {}


@pytest.mark.parametrize("changed", [{"mtu": 1400}, {"netns": "other"}, {"routes": ["10.9.0.0/16"]}, {"name": "eth9"}])
def test_interface__of_other_settings_is_closed(changed: dict[str, Any]) -> None:
    fds = os.pipe()
    leave_interfaces({"ena_0": kept(vf(), *fds)})
    assert take_interfaces([vf(**changed)]) == {}
    assert not any(map(is_open, fds))


def test_interface__that_is_in_the_settings_no_more_is_closed() -> None:
    fds = os.pipe()
    leave_interfaces({"ena_0": kept(vf(), *fds)})
    assert take_interfaces([vf("ena_1")]) == {}
    assert not any(map(is_open, fds))


@pytest.mark.parametrize("content", ["", "[]", '{"ena_0": {}}', json.dumps({"ena_0": {"fds": "x", "index": 1}})])
def test_handover__that_is_not_understood_is_one_line(content: str) -> None:
    fd = os.memfd_create("other")
    os.write(fd, content.encode())
    os.environ[HANDOVER_FD] = str(fd)
    with pytest.raises(CardError, match="what the program before this update has left"):
        take_interfaces([vf()])


@pytest.mark.parametrize(
    ("now", "is_accepted"),
    [([vf()], True), ([vf(max_flows=64)], True), ([], True), ([vf(mtu=1400)], False), ([vf(), vf("ena_1")], False)],
)
def test_new_settings__of_a_confined_card_have_the_interfaces_that_there_are(
    now: list[ExpressConfig], *, is_accepted: bool
) -> None:
    trust: Any = SimpleNamespace(config=SimpleNamespace(vfs=[vf()]))
    new: Any = SimpleNamespace(vfs=now)
    if is_accepted:
        CardTrust._check_interfaces(trust, new)
    else:
        with pytest.raises(TrustError, match="its interface is new or has other settings"):
            CardTrust._check_interfaces(trust, new)
