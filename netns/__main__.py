"""`python -m netns` is `srd-lab`."""

from netns.cli import main

main()
