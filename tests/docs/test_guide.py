"""Every block of Python in docs/guide, and of README's Python part, runs.

A block that begins with `# NAME.py` is a program. A server runs on one host of a lab until the client after it has
ended on another; the client's output is the text block that follows, if there is one. All other blocks are lines of one
program, with a `peer` that sends back what it gets, and its `endpoint`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import srd
from netns.lab.lab import Lab
from srd.proto.wire.data import DEFAULT_PORT
from tests.patience import PATIENCE_S
from tests.ports import own_port
from tests.srd.loopback import pair

ROOT = Path(__file__).resolve().parents[2]
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
PAGES = [ROOT / "README.md", *GUIDE]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"# (\w+)\.py\n")
PORT = str(DEFAULT_PORT)
LOOPBACK = "127.0.0.1"
CLIENT, SERVER = "h1", "h2"


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return (language, text) of a page's blocks; of README's, those of its Python part."""
    text = page.read_text()
    if page.name == "README.md":
        text = text[text.index("## Python") : text.index("## A lab")]
    return [(found[1], found[2]) for found in BLOCK.finditer(text)]


def programs(page: Path) -> list[tuple[str, str, str | None]]:
    """Return (name, text, wanted output) of a page's programs."""
    found: list[tuple[str, str, str | None]] = []
    for language, text in blocks(page):
        if language == "text" and found:
            found[-1] = (*found[-1][:2], text)
        elif named := PROGRAM.match(text):
            found.append((named[1], text, None))
    return found


def lines(page: Path) -> list[str]:
    """Return a page's other blocks."""
    return [text for language, text in blocks(page) if language == "python" and not PROGRAM.match(text)]


async def start(*argv: str, home: Path, stdin: int | None = None) -> Process:
    environment = os.environ | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "PYTHONPATH": str(ROOT)}
    return await asyncio.create_subprocess_exec(*argv, stdin=stdin, stdout=PIPE, env=environment)


async def stop(server: Process) -> None:
    if server.returncode is None:
        server.terminate()
    await server.wait()


@pytest.mark.root
@pytest.mark.parametrize("page", [page for page in PAGES if programs(page)], ids=lambda page: page.stem)
async def test_guide__programs(page: Path, lab: Lab, tmp_path: Path) -> None:
    """Between two machines, so with the server's address instead of a loopback's."""
    address = lab.address(SERVER)
    async with asyncio.timeout(4 * PATIENCE_S), AsyncExitStack() as servers:
        for name, text, wanted in programs(page):
            path = tmp_path / f"{name}.py"
            path.write_text(text.replace(LOOPBACK, address))
            if name.endswith("server"):
                await servers.aclose()  # those of the programs before
                process = await start(*lab.command(SERVER, [sys.executable, str(path)]), home=tmp_path)
                servers.push_async_callback(stop, process)
                assert process.stdout is not None
                assert await process.stdout.readline() == f"listening on {address} {PORT}\n".encode()
            else:
                process = await start(*lab.command(CLIENT, [sys.executable, str(path)]), home=tmp_path)
                output, _ = await process.communicate()
                assert process.returncode == 0, name
                assert wanted is None or output.decode().replace(address, LOOPBACK) == wanted


CONSOLE = """
import srd
peer = await srd.connect("127.0.0.1", {port})
await peer.send(b"hello")
print((await peer.recv()).data().decode())
await peer.close()
"""


async def test_guide__quickstart_line_by_line_in_python_m_asyncio(tmp_path: Path) -> None:
    """A loop that runs between the lines, as Jupyter's does."""
    name, text, _ = programs(ROOT / "docs" / "guide" / "quickstart.md")[0]
    assert name == "server"
    port = str(own_port())
    path = tmp_path / "server.py"
    path.write_text(text.replace(PORT, port))
    async with asyncio.timeout(2 * PATIENCE_S), AsyncExitStack() as servers:
        server = await start(sys.executable, str(path), home=tmp_path)
        servers.push_async_callback(stop, server)
        assert server.stdout is not None
        await server.stdout.readline()
        console = await start(sys.executable, "-m", "asyncio", home=tmp_path, stdin=PIPE)
        output, _ = await console.communicate(CONSOLE.format(port=port).encode())
        assert b"got hello\n" in output
        assert console.returncode == 0


@pytest.mark.parametrize("page", [page for page in GUIDE if lines(page)], ids=lambda page: page.stem)
async def test_guide__lines(page: Path) -> None:
    async with pair() as (endpoint, _, peer, there):

        async def send_back() -> None:
            with suppress(srd.SrdError):  # a page ends while an answer is on its way
                async for message in there:
                    await there.send(message.data(), immediate=message.immediate)

        sending_back = asyncio.create_task(send_back())
        names: dict[str, Any] = {
            "asyncio": asyncio,
            "srd": srd,
            "peer": peer,
            "endpoint": endpoint,
            "__name__": "guide",
        }
        for text in lines(page):
            code = compile(text, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            result = eval(code, names)  # noqa: S307 - the project's own text
            if inspect.isawaitable(result):
                await result
        await peer.close()
        await asyncio.wait([sending_back])


def test_guide__has_pages_that_run() -> None:
    assert {page.stem for page in GUIDE} >= {"quickstart", "embedding", "congestion-control", "troubleshooting", "faq"}
    assert sum(len(lines(page)) + len(programs(page)) for page in PAGES) >= 15


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_guide__its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target
