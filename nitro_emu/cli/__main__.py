"""`python -m nitro_emu.cli` is `nitro-card`."""

from nitro_emu.command import nitro_card as main

main()
