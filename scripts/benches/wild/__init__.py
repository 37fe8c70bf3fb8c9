"""Dumbbells to compete on; TCP in virtual time (sender, receiver, models of Reno, CUBIC, BBR); ours on sockets."""
