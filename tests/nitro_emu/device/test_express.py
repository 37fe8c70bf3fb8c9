"""Virtual functions of kind ENA Express on real cards: unmodified programs in the namespaces of two tenants."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from netns.backends.relay.tap import inside
from nitro_emu.control import ask
from tests.nitro_emu.device.cards import Card, wait_for
from tests.nitro_emu.device.vpc_cards import ControlPlane, Vf, vpc_cards
from tests.patience import PATIENCE_S
from tests.srd.tunnel.cable import ip, namespaces

LOW, HIGH = "172.31.0.5", "172.31.0.6"
"""The addresses that both VPCs have."""
EVERYONE = {"cidr": "0.0.0.0/0"}
ALL = {"protocol": "all", **EVERYONE}


class Tenant:
    """A namespace with a tenant's interface, and the card that it is on."""

    def __init__(self, netns: str, card: Card, vf: str) -> None:
        self.netns, self.card, self.vf = netns, card, vf

    def socket(self, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        with inside(self.netns):
            made = socket.socket(socket.AF_INET, kind)
        made.settimeout(PATIENCE_S)
        return made

    def listener(self, port: int) -> socket.socket:
        made = self.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("0.0.0.0", port))  # noqa: S104 - in a namespace of its own
        made.listen()
        return made

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ip", "netns", "exec", self.netns, *command], capture_output=True, text=True, check=False
        )

    def ping(self, to: str, *options: str) -> bool:
        return self.run("ping", "-c", "1", *options, to).returncode == 0

    def stats(self) -> dict[str, Any]:
        return self.card.stats(self.vf)

    def dropped(self, reason: str) -> int:
        count: int = self.stats()["dropped"].get(reason, 0)
        return count


@contextmanager
def tenants(
    directory: Path, vpcs: Sequence[str] = ("red",), *, pushes: bool = True
) -> Iterator[tuple[ControlPlane, dict[tuple[str, str], Tenant]]]:
    """Two cards; of each VPC, LOW is on card-a and HIGH on card-b, which knows its namespaces by processes in them."""
    with ExitStack() as stack:
        names = stack.enter_context(namespaces(2 * len(vpcs)))
        low, high = names[: len(vpcs)], names[len(vpcs) :]
        pids = [stack.enter_context(sleeping(each)) for each in high]
        wanted = {
            "card-a": [vf_of(number, vpc, LOW, netns=low[number]) for number, vpc in enumerate(vpcs)],
            "card-b": [vf_of(number, vpc, HIGH, netns=pids[number]) for number, vpc in enumerate(vpcs)],
        }
        control_plane, cards = stack.enter_context(vpc_cards(directory, wanted, pushes=False))
        for vpc in vpcs:
            control_plane.vpcs[vpc]["groups"]["efa"] = {"ingress": [ALL], "egress": [ALL]}
        if pushes:
            control_plane.push()
        found = {}
        for number, vpc in enumerate(vpcs):
            found[vpc, LOW] = Tenant(low[number], cards["card-a"], f"ena_{number}")
            found[vpc, HIGH] = Tenant(high[number], cards["card-b"], f"ena_{number}")
        yield control_plane, found


@contextmanager
def sleeping(netns: str) -> Iterator[int]:
    with subprocess.Popen(["ip", "netns", "exec", netns, "sleep", "infinity"]) as process:  # ip executes it
        wait_for(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n", "sleep in its namespace")
        try:
            yield process.pid
        finally:
            process.kill()


def vf_of(number: int, vpc: str, address: str, *, netns: str | int) -> Vf:
    more = f"kind: ena-express, interface: {{subnet: 172.31.0.0/16, netns: {netns}, name: eth{number}}}"
    return Vf(f"ena_{number}", vpc, address, more=more)


def stream(left: Tenant, right: Tenant, *, seed: int, length: int = 3_000_000, port: int = 80) -> None:
    """Send bytes both ways over one TCP connection from left to right, and compare all of them."""
    data = np.random.default_rng(seed).bytes(length)
    with right.listener(port) as listener, left.socket() as client:
        client.connect((HIGH, port))
        server, _ = listener.accept()
        server.settimeout(PATIENCE_S)
        with server:
            senders = [threading.Thread(target=send_all, args=(end, data)) for end in (client, server)]
            for sender in senders:
                sender.start()
            found = [read_all(end, length) for end in (server, client)]
            for sender in senders:
                sender.join()
    assert found == [data, data]


def send_all(end: socket.socket, data: bytes) -> None:
    end.sendall(data)


def read_all(end: socket.socket, length: int) -> bytes:
    found = bytearray()
    while len(found) < length and (part := end.recv(1 << 16)):
        found += part
    return bytes(found)


def test_programs__of_two_vpcs_with_the_same_addresses(tmp_path: Path) -> None:
    with tenants(tmp_path, ("red", "blue")) as (_, by_place):
        red, blue = (by_place["red", LOW], by_place["red", HIGH]), (by_place["blue", LOW], by_place["blue", HIGH])
        shown = ip("address", "show", "eth0", netns=red[0].netns)
        assert f"inet {LOW}/16" in shown
        assert "mtu 8900" in shown
        for left, right in (red, blue):
            assert left.ping(HIGH)
            assert right.ping(LOW)
        servers = [
            threading.Thread(target=stream, args=pair, kwargs={"seed": seed}) for seed, pair in enumerate((red, blue))
        ]
        for server in servers:
            server.start()
        for server in servers:
            server.join()
        stream(*red, seed=2)
        assert red[0].ping(HIGH, "-s", "60000"), "in fragments"
        before = blue[1].stats()["ena"]["ena_srd_rx_pkts"]
        assert red[0].ping(HIGH)
        assert blue[1].stats()["ena"]["ena_srd_rx_pkts"] == before
        for tenant in (*red, *blue):
            found = tenant.stats()
            assert found["dropped"].keys() <= {"queue"}, "CoDel's only"
            assert found["ena"]["ena_srd_tx_pkts"] == found["ena"]["ena_srd_eligible_tx_pkts"] > 0


def test_address_of_another_vpc__is_never_reached(tmp_path: Path) -> None:
    with tenants(tmp_path, ("red", "blue")) as (control_plane, by_place):
        del control_plane.vpcs["red"]["interfaces"]["card-b-ena-0"]
        control_plane.push()
        left, other = by_place["red", LOW], by_place["blue", HIGH]
        assert not left.ping(HIGH, "-W", "1"), "only VPC blue has it now"
        assert left.dropped("no_interface") > 0
        assert other.stats()["ena"]["ena_srd_rx_pkts"] == 0
        assert by_place["blue", LOW].ping(HIGH)


def refused(left: Tenant, port: int) -> bool:
    """Whether a connection attempt is not answered; it is repeated once, after a second."""
    with left.socket() as client:
        client.settimeout(1.5)
        try:
            client.connect((HIGH, port))
        except TimeoutError:
            return True
    return False


def test_security_groups__of_inner_packets(tmp_path: Path) -> None:
    with tenants(tmp_path, pushes=False) as (control_plane, by_place):
        left, right = by_place["red", LOW], by_place["red", HIGH]
        assert not left.ping(HIGH, "-W", "1"), "there is no mapping yet"
        assert left.dropped("no_mapping") > 0
        groups = control_plane.vpcs["red"]["groups"]
        groups["client"] = {"egress": [{"protocol": "tcp", "ports": "80-81", "group": "server"}]}
        groups["server"] = {
            "ingress": [
                {"protocol": "tcp", "ports": 80, "group": "client"},
                {"protocol": "icmp", "icmp_type": 13, "group": "client"},
            ],
            "egress": [],
        }
        interfaces = control_plane.vpcs["red"]["interfaces"]
        interfaces["card-a-ena-0"]["groups"], interfaces["card-b-ena-0"]["groups"] = ["client"], ["server"]
        control_plane.push()
        stream(left, right, seed=1)
        assert not left.dropped("security_group")
        with right.listener(82):
            assert refused(left, 82), "no egress rule"
            assert left.dropped("security_group") > 0
            assert right.dropped("security_group") == 0
        with right.listener(81):
            assert refused(left, 81), "no ingress rule"
            assert right.dropped("security_group") > 0
        assert not right.ping(LOW, "-W", "1"), "no egress rule of the server's"


def test_rule__that_is_withdrawn_stops_what_is_open_and_what_is_new(tmp_path: Path) -> None:
    with tenants(tmp_path) as (control_plane, by_place):
        left, right = by_place["red", LOW], by_place["red", HIGH]
        assert left.ping(HIGH)
        with right.listener(80) as listener, left.socket() as client:
            client.connect((HIGH, 80))
            server, _ = listener.accept()
            client.sendall(b"before")
            assert server.recv(16) == b"before"
            group = control_plane.vpcs["red"]["groups"]["efa"]
            group["ingress"] = []
            control_plane.push()
            dropped = right.dropped("security_group")
            client.sendall(b"after")
            wait_for(lambda: right.dropped("security_group") > dropped, "the flow's next packet is judged again")
            assert not left.ping(HIGH, "-W", "1")
            group["ingress"] = [ALL]
            control_plane.push()
            server.settimeout(PATIENCE_S)
            assert server.recv(16) == b"after", "TCP has sent it again"
            server.close()


def test_source__that_is_not_the_interface_s_is_dropped(tmp_path: Path) -> None:
    with tenants(tmp_path) as (_, by_place):
        left, right = by_place["red", LOW], by_place["red", HIGH]
        ip("address", "add", "172.31.0.99/32", "dev", "eth0", netns=left.netns)
        assert not left.ping(HIGH, "-W", "1", "-I", "172.31.0.99")
        assert left.dropped("spoofed_source") > 0
        assert right.stats()["ena"]["ena_srd_rx_pkts"] == 0
        assert left.ping(HIGH)


def test_interface__that_its_tenant_deletes_harms_no_other(tmp_path: Path) -> None:
    with tenants(tmp_path, ("red", "blue")) as (_, by_place):
        left = by_place["red", LOW]
        assert left.ping(HIGH)
        ip("link", "delete", "eth0", netns=left.netns)
        wait_for(
            lambda: ask(left.card.run_dir, "status")["vfs"]["ena_0"]["interface"] is None, "the card notices its end"
        )
        assert by_place["red", HIGH].run("ping", "-c", "1", "-W", "1", LOW).returncode != 0
        assert left.dropped("down") > 0
        stream(by_place["blue", LOW], by_place["blue", HIGH], seed=3)


def test_card__leaves_nothing_in_the_namespace(tmp_path: Path) -> None:
    with tenants(tmp_path) as (_, by_place):
        left = by_place["red", LOW]
        assert "eth0" in ip("link", netns=left.netns)
        left.card.kill()
        assert not re.search("eth0|172.31", ip("address", netns=left.netns) + ip("route", netns=left.netns))
        left.card.start()
        assert "eth0" in ip("link", netns=left.netns)
