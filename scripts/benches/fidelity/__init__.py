"""Does the relay do what the kernel's netem does? The same packets through both, and statistics on what comes out."""
