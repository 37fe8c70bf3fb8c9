"""Labs: the plan of a topology, its operations, and what was made, on disk."""
