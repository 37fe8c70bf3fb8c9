"""`python -m srd` is `srd`."""

from srd.cli import main

main()
