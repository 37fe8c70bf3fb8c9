"""The commands of the card: the entry points of the console scripts."""

from __future__ import annotations

from functools import partial
from typing import Final

from devmem.errors import DevmemError
from netns.base.entry import start
from nitro_emu.errors import ConfigError, NitroError
from srd.errors import SrdError

EXTRA: Final = ("cbor2", "click", "crc32c", "prometheus_client", "pydantic", "rich", "uvloop", "yaml")
"""What the extra `card` brings."""

STATUSES: Final[dict[type[Exception], int]] = {ConfigError: 2, NitroError: 1, SrdError: 1, DevmemError: 1}
"""Exit status of each error; see `netns.base.program`."""

_start: Final = partial(start, extra="card", libraries=EXTRA)

nitro_card: Final = partial(_start, "nitro-card", "nitro_emu.cli:cli")
nitro_chip: Final = partial(_start, "nitro-chip", "nitro_emu.cli.chip:cli")
nitro_verify: Final = partial(_start, "nitro-verify", "nitro_emu.cli.verify:cli")
nitro_volume: Final = partial(_start, "nitro-volume", "nitro_emu.cli.volume:cli")
nitro_vpc: Final = partial(_start, "nitro-vpc", "nitro_emu.cli.vpc:cli")
efa_bw: Final = partial(_start, "efa-bw", "nitro_emu.cli.perf:bw")
efa_pingpong: Final = partial(_start, "efa-pingpong", "nitro_emu.cli.perf:pingpong")
