"""The ground floor: what all packages use, each thing once. It imports nothing of ours.

Here because the top of the tree is settled, and `srd`, `nitro_emu` and `netns` itself use it: of the two packages that
import nothing (`devmem`, `netns`), `netns` is the one that none of them reaches but for this. `devmem` is memory, and
imports NumPy. A module imports the library that it is about (click, rich, PyYAML, prometheus_client) and no other, so
that `import srd` needs none of them.

Belongs here: what two packages need and what knows nothing of either, such as a notation, a table, a socket's rules.
What knows a packet, a lab or a card does not.
"""
