"""A volume server as a process: DIRECTORY PORT KEY, the key in hexadecimal digits; port 0: any."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from netns.base.output import emit
from nitro_emu.ebs.server.service import ServerConfig, serve
from srd import Psk

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    directory, port, key = sys.argv[1:]
    config = ServerConfig(directory=Path(directory), host="127.0.0.1", port=int(port), security=Psk(bytes.fromhex(key)))
    asyncio.run(serve(config, on_ready=lambda address: emit("ready", port=address[1])))
