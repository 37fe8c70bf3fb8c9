"""`python -m nitro_emu.cli` is `nitro-card`."""

from nitro_emu.cli import main

main()
