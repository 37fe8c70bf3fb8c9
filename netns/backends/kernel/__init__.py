"""The kernel backend: tc netem in the kernel, over rtnetlink."""
