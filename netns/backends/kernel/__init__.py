"""tc netem in the kernel, over rtnetlink."""
