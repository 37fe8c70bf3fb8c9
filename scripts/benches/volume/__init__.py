"""The case `volume`: servers and their writer over TCP, as the baseline, and what fio measures."""
