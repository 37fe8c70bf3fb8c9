"""Dumbbells to compete on; TCP in virtual time (sender, receiver, models of CUBIC, BBR); ours on sockets."""
