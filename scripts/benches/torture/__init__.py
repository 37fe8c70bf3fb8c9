"""Real endpoints under everything that hosts, networks and strangers do to them, and whether every byte is right."""
