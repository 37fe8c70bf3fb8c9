"""Open MPI over its TCP transport: all-reduce and all-to-all between ranks on both hosts.

mpirun runs on the client's host, and starts its daemon on the server's host by ssh, or by that host's prefix where
that is another command. MPI uses the interface towards the server's address only, for its own messages, too. That
interface has the same name on both hosts, or both are in one network; and the checkout is at the same place on both.
Checked: every result of every call on every rank.
"""

from __future__ import annotations

import ipaddress
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.tunnel.hosts import Figures, Pair, TunnelHost, main, require

SIZES: Final = (8, 1024, 65_536, 1_048_576)
CALLS: Final = 20
RANKS_PER_HOST: Final = 2
_HERE: Final = Path(__file__).resolve().parent
_FIXED: Final = {
    "pml": "ob1",
    "btl": "tcp,self",
    "hwloc_base_binding_policy": "none",
    "mpi_yield_when_idle": "1",  # there may be more ranks than cores
}


def run(pair: Pair, *, sizes: Sequence[int] = SIZES, calls: int = CALLS) -> list[Figures]:
    """Run the ranks; return a row for each collective and size."""
    server, client = pair.server, pair.client
    own, network = route_towards(pair.address, host=client)
    by_ssh = server.prefix and Path(server.prefix[0]).name == "ssh"
    agent = "ssh" if by_ssh else str(_HERE / "launch_agent")
    parameters = _FIXED | {"plm_rsh_agent": agent, "btl_tcp_if_include": network, "oob_tcp_if_include": network}
    flags = [word for name, value in parameters.items() for word in ("--mca", name, value)]
    with client.directory() as here, server.directory() as there:
        environment = {
            "TMPDIR": here,
            "TUNNEL_SERVER": shlex.join(server.prefix),
            "TUNNEL_DIRECTORY": there,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        hosts = f"{own}:{RANKS_PER_HOST},{pair.address}:{RANKS_PER_HOST}"
        rank = (sys.executable, str(_HERE / "mpi_rank.py"), str(calls), *map(str, sizes))
        variables = [f"{name}={value}" for name, value in environment.items()]
        output = client.run("env", *variables, "mpirun", *flags, "--host", hosts, *rank)
    return _rows([json.loads(line) for line in output.splitlines() if line.startswith("{")], sizes=sizes)


def route_towards(address: str, *, host: TunnelHost) -> tuple[str, str]:
    """Return a host's own address towards another, and what MPI calls the network: CIDR, or the interface."""
    (route,) = json.loads(host.run("ip", "-json", "route", "get", address))
    (interface,) = json.loads(host.run("ip", "-json", "-4", "address", "show", "dev", route["dev"]))
    own = route["prefsrc"]
    for each in interface["addr_info"]:
        network = ipaddress.ip_network(f"{each['local']}/{each['prefixlen']}", strict=False)
        if each["local"] == own and ipaddress.ip_address(address) in network:
            return own, str(network)
    (holder,) = (
        each["ifname"]
        for each in json.loads(host.run("ip", "-json", "-4", "address"))
        if own in [held["local"] for held in each["addr_info"]]
    )
    return own, holder


def _rows(measured: Sequence[Figures], *, sizes: Sequence[int]) -> list[Figures]:
    require(len(measured) == 2 * len(sizes), f"mpi: {len(measured)} of {2 * len(sizes)} measurements ended")
    for each in measured:
        what = f"{each['collective']} of {each['bytes']} bytes"
        require(not each["wrong"], f"mpi: {each['wrong']} results of {what} are wrong")
    return [{name: each[name] for name in ("collective", "bytes", "latency_us")} for each in measured]


if __name__ == "__main__":
    main(run, summary=__doc__ or "")
