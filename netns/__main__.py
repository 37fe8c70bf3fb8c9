"""`python -m netns` is `srd-lab`."""

from netns.command import main

main()
