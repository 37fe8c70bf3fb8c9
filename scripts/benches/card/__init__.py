"""The bench `card`: two cards as processes in namespaces joined by a veth pair, and their applications."""
