"""How a topology's links become real: tc netem in the kernel, or TAP pairs that a relay process carries."""
