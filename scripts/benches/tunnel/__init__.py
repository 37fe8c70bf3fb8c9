"""What the case `tunnel` runs: what carries the packets, the workers whose connections it carries, and redis."""
