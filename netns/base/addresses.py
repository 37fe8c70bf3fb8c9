"""HOST:PORT, read and written: an IPv6 address has brackets."""

from __future__ import annotations


def parse_host_port(text: str, *, example_port: int) -> tuple[str, int]:
    """Return host and port. Raises ValueError with one line, which names `example_port` in its example."""
    host, colon, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not colon or not 0 <= number <= 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to 65535, such as 192.0.2.1:{example_port}")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"{text!r}: put an IPv6 address in brackets, such as [::1]:{example_port}")
    return host.removeprefix("[").removesuffix("]"), number


def host_port_text(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
