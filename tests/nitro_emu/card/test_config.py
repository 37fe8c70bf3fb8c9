"""nitro_emu.card.config: what a card's file may say, and how mistakes in it read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.card.config import DEFAULT_RUN_DIR, CardConfig, load
from nitro_emu.card.kinds import AnyVfConfig
from nitro_emu.cli.options import RUN_DIR_VARIABLE
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.efa.verbs.context import DEFAULT_DIRECTORY, DIRECTORY_VARIABLE
from nitro_emu.errors import ConfigError
from nitro_emu.examples import DIRECTORY as EXAMPLES
from nitro_emu.express.config import ExpressConfig
from nitro_emu.peers.vf_config import MAX_MEMORY_BYTES, MIN_MEMORY_BYTES
from nitro_emu.vpc.model import load as load_vpc
from nitro_emu.vpc.rules import Mapping
from srd.config import EndpointConfig
from srd.proto.config import ProtocolConfig
from srd.secure.config import Keys, Plain, Psk
from srd.secure.keys import create, create_psk, public_text
from srd.secure.noise import public_bytes
from tests.nitro_emu.vpc.maps import allows

VF = "{name: efa_0, address: 127.0.0.1}"


def file_in(directory: Path, text: str, *, name: str = "card.yaml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def vf_of(directory: Path, fields: str) -> AnyVfConfig:
    return load(file_in(directory, f"vfs: [{{name: efa_0, address: 127.0.0.1, {fields}}}]")).vfs[0]


def test_examples_are_two_cards_that_can_run_side_by_side() -> None:
    a, b = load(EXAMPLES / "card-a.yaml"), load(EXAMPLES / "card-b.yaml")
    assert a.run_dir != b.run_dir
    assert a.name != b.name
    assert [vf.name for vf in a.vfs] == [vf.name for vf in b.vfs] == ["efa_0", "efa_1"]
    assert [(vf.address, vf.port) for vf in a.vfs] == [("10.0.1.1", 19875), ("10.0.1.1", 19876)]
    assert {vf.address for vf in b.vfs} == {"10.0.2.1"}
    assert {vf.address for vf in load(EXAMPLES / "loopback.yaml").vfs} == {"127.0.0.1"}


def test_examples_of_interfaces_fit_their_vpc() -> None:
    mapping = Mapping(load_vpc(EXAMPLES / "express-vpc.yaml"), version=1)
    client, server = (load(EXAMPLES / f"express-card-{name}.yaml") for name in ("a", "b"))
    for card in (client, server):
        vf = card.vfs[0]
        interface = mapping.find(str(vf.vpc), str(vf.private_address))
        assert interface is not None
        assert (interface.card.name, interface.card.address, interface.port) == (card.name, vf.address, vf.port)
    there, back = (mapping.find("red", str(card.vfs[0].private_address)) for card in (server, client))
    assert there is not None
    assert back is not None
    assert allows(mapping, back, there, protocol="tcp", port=5201)
    assert not allows(mapping, there, back, protocol="tcp", port=5201)


def in_vpc(more: str, *, name: str = "a") -> str:
    vf = f"name: {name}, address: 127.0.0.1, vpc: red, private_address: 10.9.0.5, {more}"
    return f"control_plane: {{key: a.pem}}\nvfs: [{{{vf}}}]"


def express(interface: str, *, name: str = "a") -> str:
    return in_vpc(f"kind: ena-express, interface: {{{interface}}}", name=name)


def test_interface(tmp_path: Path) -> None:
    config = load(file_in(tmp_path, express("subnet: 10.9.0.0/24, netns: 4711, routes: [10.8.0.0/16], max_flows: 1K")))
    vf = config.with_run_dir(tmp_path).vfs[0]
    assert isinstance(vf, ExpressConfig)
    interface = vf.interface
    assert (interface.netns, interface.mtu, interface.name, interface.routes) == (4711, 8900, None, ("10.8.0.0/16",))
    assert interface.max_flows == 1000


def test_defaults(tmp_path: Path) -> None:
    config = load(file_in(tmp_path, f"vfs: [{VF}]", name="card-7.yaml"))
    vf = config.vfs[0]
    assert isinstance(vf, EfaConfig)
    assert (config.name, config.run_dir, config.metrics) == ("card-7", DEFAULT_RUN_DIR, None)
    assert (vf.port, vf.uid, vf.security.mode, vf.paths, vf.mtu) == (19875, None, "keys", 8, None)
    assert (vf.memory_bytes, vf.max_mr_bytes) == (24 << 20, 8 << 30)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no settings; give vfs"),
        ("[1]", "holds no settings; give vfs"),
        ("name: a", "vfs: missing"),
        ("vfs: []", "vfs: [] list should have at least 1 item"),
        ("vfs: 3", "vfs: 3 should be a valid list"),
        ("vfs: [3]", "vfs[0]: 3 should be a valid mapping"),
        ("vfs: [{name: a}]", "vfs[0].address: missing"),
        ("vfs: [{name: A, address: 127.0.0.1}]", "vfs[0].name: 'A' String should match"),
        ("vfs: [{name: ../a, address: 127.0.0.1}]", "vfs[0].name: '../a' String should match"),
        ('vfs: [{name: "a\\n", address: 127.0.0.1}]', "vfs[0].name: 'a\\n' String should match"),
        ("vfs: [{name: 1, address: 127.0.0.1}]", "vfs[0].name: 1 should be a valid string; put it in quotes"),
        ("vfs: [{name: control, address: 127.0.0.1}]", "'control' is the control socket's; give another"),
        ("vfs: [{name: a, address: host}]", "vfs[0].address: 'host' is no IP address"),
        ("vfs: [{name: a, address: 0.0.0.0}]", "vfs[0].address: 0.0.0.0 is no address of an interface"),
        ("vfs: [{name: a, address: 255.255.255.255}]", "is not the GID of a peer; give an address of this host"),
        ("vfs: [{name: a, address: 'ff02::1'}]", "vfs[0].address: ff02::1 is no address of an interface"),
        ("vfs: [{name: a, address: 'fe80::1'}]", "a GID of that form means an IPv4 address"),
        ("vfs: [{name: a, address: '::ffff:1.2.3.4'}]", "a GID of that form means an IPv4 address"),
        ("vfs: [{name: a, address: 127.0.0.1, port: 0}]", "vfs[0].port: 0 should be greater than or equal to 1"),
        ("vfs: [{name: a, address: '::1', port: 5}]", "port: 5 is not 19875, which IPv6 always has"),
        ("vfs: [{name: a, address: 127.0.0.1, prot: 1}]", "vfs[0].prot: no such key; the known ones here are name, "),
        ("vfs: [{name: a, address: 127.0.0.1, paths: 65}]", "vfs[0].paths: 65 should be less than or equal to 64"),
        ("vfs: [{name: a, address: 127.0.0.1, memory_bytes: 24X}]", "24X is not a size: give bytes"),
        ("vfs: [{name: a, address: 127.0.0.1, memory_bytes: 1M}]", "memory_bytes: 1048576 should be greater"),
        ("vfs: [{name: a, address: 127.0.0.1, max_mr_bytes: 16T}]", "max_mr_bytes: 17592186044416 should be less than"),
        (f"vfs: [{VF}, {{name: efa_0, address: 127.0.0.2}}]", "vfs: efa_0 is the name of two"),
        (f"vfs: [{VF}, {{name: b, address: 127.0.0.1}}]", "vfs: efa_0 and b have both 127.0.0.1 port 19875"),
        (f"vfs: [{VF}]\nrun_dir: run", "run_dir: 'run' is no absolute path"),
        (f"vfs: [{VF}]\nrun_dir: /{'x' * 100}", "has 101 bytes; sockets there have at most 94: shorten it"),
        (f"vfs: [{VF}]\nname: a/b", "name: 'a/b' String should match"),
        (f"vfs: [{VF}]\npoll_s: .nan", "poll_s: '.nan' should be a valid number"),
        (f"vfs: [{VF}]\npoll_s: 2", "poll_s: 2 should be less than or equal to 1"),
        (f"vfs: [{VF}]\nbusy_poll: 1", "busy_poll: 1 should be a valid boolean"),
        (f"vfs: [{VF}]\nlog_level: loud", "log_level: 'loud' should be 'debug', 'info', 'warning' or 'error'"),
        (f"vfs: [{VF}]\nmetrics: localhost", "metrics: 'localhost' is not HOST:PORT"),
        (f"vfs: [{VF}]\ncolour: 1", "colour: no such key; the known ones here are name, run_dir, vfs"),
        (f"1: 2\nvfs: [{VF}]", ": 1 Keys should be strings"),
        (in_vpc("kind: ena-express"), "vfs[0].interface: missing"),
        (in_vpc("interface: {subnet: 10.9.0.0/24}"), "vfs[0].interface: no such key; the known ones here are name, "),
        (in_vpc("kind: ena"), "vfs[0].kind: 'ena' should be one of 'efa', 'ena-express'"),
        (
            "vfs: [{name: a, address: 127.0.0.1, kind: ena-express, interface: {subnet: 10.9.0.0/24}}]",
            "vfs[0].vpc: missing",
        ),
        (express("subnet: 10.8.0.0/24"), "interface.subnet: 10.8.0.0/24 does not have 10.9.0.5"),
        (express("subnet: 10.9.0.1/24"), "10.9.0.1/24 has host bits set; give an address range"),
        (express("subnet: 10.9.0.0/24, mtu: 500"), "vfs[0].interface.mtu: 500 should be greater than or equal to 1280"),
        (express("subnet: 10.9.0.0/24, netns: a/b"), "vfs[0].interface.netns"),
        (express("subnet: 10.9.0.0/24, name: sixteen-letters-"), "vfs[0].interface.name: 'sixteen-letters-' String"),
        (express("subnet: 10.9.0.0/24", name="sixteen-letters-"), "sixteen-letters- has more than 15 characters; give"),
        (
            express("subnet: 10.9.0.0/24, colour: red"),
            "vfs[0].interface.colour: no such key; the known ones here are subnet, routes, netns",
        ),
    ],
)
def test_mistakes_are_one_line_with_file_key_and_value(tmp_path: Path, text: str, message: str) -> None:
    path = file_in(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("security", "message"),
    [
        ("{mode: psk}", "security: mode psk needs psk_file"),
        ("{mode: plain, psk_file: a}", "psk_file stands beside mode plain"),
        ("{mode: psk, psk_file: a, key_file: b}", "key_file stands beside mode psk"),
        ("{mode: secret}", "should be 'plain', 'psk' or 'keys'"),
        ("{key: a}", "security.key: no such key; the known ones here are mode, psk_file"),
        ("{psk_file: 3}", "psk_file: 3 should be an instance of Path"),
        ("{psk_file: ''}", "psk_file: '' is no name of a file"),
    ],
)
def test_security_that_contradicts_itself_is_refused(tmp_path: Path, security: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        vf_of(tmp_path, f"security: {security}")


def test_security_plain(tmp_path: Path) -> None:
    config = load(file_in(tmp_path, "vfs: [{name: efa_0, address: 127.0.0.1, security: {mode: plain}}]"))
    assert config.security_of(config.vfs[0]) == Plain()


def test_security_psk__file_is_relative_to_the_settings(tmp_path: Path) -> None:
    create_psk(tmp_path / "tenant.psk")
    config = load(
        file_in(tmp_path, "vfs: [{name: efa_0, address: 127.0.0.1, security: {mode: psk, psk_file: tenant.psk}}]")
    )
    assert isinstance(config.security_of(config.vfs[0]), Psk)


def test_security_keys__each_vf_has_a_key_of_its_own_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRD_HOME", str(tmp_path / "home"))
    config = load(file_in(tmp_path, f"vfs: [{VF}, {{name: efa_1, address: 127.0.0.2}}]"))
    first, second = (_key_of(config, number) for number in (0, 1))
    assert first != second
    assert first == _key_of(config, 0)
    assert config.key_directory(config.vfs[0]) == tmp_path / "home" / "cards" / "card" / "efa_0"


def test_security_keys__named_files(tmp_path: Path) -> None:
    key = create(tmp_path / "key")
    (tmp_path / "authorized").write_text(public_text(public_bytes(key)) + "\n")
    create_psk(tmp_path / "psk")
    fields = "{key_file: key, authorized_keys: authorized, known_hosts: hosts, psk_file: psk}"
    config = load(file_in(tmp_path, f"vfs: [{{name: efa_0, address: 127.0.0.1, security: {fields}}}]"))
    security = config.security_of(config.vfs[0])
    assert isinstance(security, Keys)
    assert security.private_key is not None
    assert public_bytes(security.private_key) == public_bytes(key)
    assert security.authorized == frozenset([public_bytes(key)])
    assert security.known_hosts == tmp_path / "hosts"
    assert any(security.psk)


def test_security_keys__a_named_key_is_not_made(tmp_path: Path) -> None:
    config = load(file_in(tmp_path, "vfs: [{name: efa_0, address: 127.0.0.1, security: {key_file: missing}}]"))
    with pytest.raises(ConfigError, match=r"efa_0: security: .*missing: cannot be read"):
        config.security_of(config.vfs[0])


def _key_of(config: CardConfig, number: int) -> bytes:
    security = config.security_of(config.vfs[number])
    assert isinstance(security, Keys)
    assert security.private_key is not None
    return public_bytes(security.private_key)


def test_size_has_units(tmp_path: Path) -> None:
    assert vf_of(tmp_path, "memory_bytes: 1g").memory_bytes == 1 << 30


@given(memory_bytes=st.integers(MIN_MEMORY_BYTES, MAX_MEMORY_BYTES))
def test_memory_satisfies_the_endpoint(memory_bytes: int) -> None:
    vf = EfaConfig(name="efa_0", address="127.0.0.1", memory_bytes=memory_bytes)
    EndpointConfig(  # raises for what does not fit
        protocol=ProtocolConfig(receive_window_bytes=vf.receive_window_bytes, max_message_bytes=1 << 16),
        receive_region_bytes=vf.memory_bytes,
        chunk_bytes=vf.chunk_bytes,
    )
    assert vf.receive_window_bytes >= vf.memory_bytes // 4


def test_sha384_is_that_of_the_file(tmp_path: Path) -> None:
    path = file_in(tmp_path, f"vfs: [{VF}] # a comment counts")
    expected = hashlib.sha384(path.read_bytes()).hexdigest()
    config = load(path)
    assert config.sha384 == expected
    assert config.with_run_dir(tmp_path).sha384 == expected


def test_sha384_without_a_file_is_that_of_the_settings(tmp_path: Path) -> None:
    vfs: Any = (EfaConfig(name="efa_0", address="127.0.0.1"),)
    one, other = (CardConfig(name="card", run_dir=tmp_path, vfs=vfs, busy_poll=busy) for busy in (False, True))
    assert len(one.sha384) == 96
    assert one.sha384 != other.sha384


def test_with_run_dir_checks_it(tmp_path: Path) -> None:
    config = load(file_in(tmp_path, f"vfs: [{VF}]"))
    assert config.with_run_dir(tmp_path).run_dir == tmp_path
    with pytest.raises(ConfigError, match="shorten it"):
        config.with_run_dir(Path("/" + "x" * 100))


PCR0 = "0Ab1" * 24
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def trusted_config(directory: Path, *, root: str) -> CardConfig:
    """Return the settings of a card that requires attestations, with one text of each kind that they may have."""
    text = f"""
        vfs:
          - {{name: efa_0, address: 127.0.0.1, vpc: red, private_address: 10.0.0.5, bandwidth: 10gbit,
             memory_bytes: 64M}}
        control_plane: {{key: vpc.pem, listen: '127.0.0.1:7471'}}
        require_attestation:
          pcrs: {{0: "{PCR0}", 31: "{"00" * 48}"}}
          root: {root}
    """
    return load(file_in(directory, text))


@pytest.mark.parametrize("root", ["root.pem", "|\n            " + PEM.replace("\n", "\n            ")])
def test_with_run_dir_keeps_all_else(tmp_path: Path, root: str) -> None:
    config = trusted_config(tmp_path, root=root)
    other = config.with_run_dir(tmp_path)
    assert other.run_dir == tmp_path
    assert other.with_run_dir(config.run_dir) == config
    assert (other.sha384, other.path) == (config.sha384, config.path)
    fields = other.require_attestation
    assert fields is not None
    assert fields.pcrs == {0: bytes.fromhex(PCR0), 31: bytes(48)}
    assert fields.root == (tmp_path / "root.pem" if root == "root.pem" else PEM)
    assert other.control_plane is not None
    assert other.control_plane.key == tmp_path / "vpc.pem"


def test_sha384_without_a_file_covers_pcrs(tmp_path: Path) -> None:
    values = trusted_config(tmp_path, root="root.pem").model_dump()
    one = CardConfig.model_validate(values)
    values["require_attestation"]["pcrs"][0] = "00" * 48
    other = CardConfig.model_validate(values)
    assert len(one.sha384) == 96
    assert one.path is None
    assert one.sha384 != other.sha384


@pytest.mark.parametrize("value", ["'00'", "5", f"'{'0g' * 48}'", f"'{'00' * 49}'"])
def test_what_is_no_pcr_is_refused(tmp_path: Path, value: str) -> None:
    text = f"vfs: [{VF}]\nrequire_attestation: {{root: r.pem, pcrs: {{0: {value}}}}}"
    with pytest.raises(ConfigError, match=r"is no PCR; give 96 hexadecimal digits in quotes"):
        load(file_in(tmp_path, text))


def test_metrics_address(tmp_path: Path) -> None:
    for text, expected in (("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9100", ("::1", 9100))):
        assert load(file_in(tmp_path, f"vfs: [{VF}]\nmetrics: '{text}'")).metrics == expected


def test_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read: No such file"):
        load(tmp_path / "missing.yaml")


def test_programs_look_where_cards_are() -> None:
    assert DEFAULT_RUN_DIR == DEFAULT_DIRECTORY
    assert RUN_DIR_VARIABLE == DIRECTORY_VARIABLE
