"""`python -m srd` is `srd`."""

from srd.command import main

main()
