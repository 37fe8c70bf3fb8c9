"""`make demo-training`: the same training over SRD and over gloo, on a fabric that fails meanwhile.

`run` has the story, `jobs` the lab and the ranks, `plots` the picture. The rank's program: scripts/harness/torch_rank.
"""
