"""netem: link shapes, tc's notation, and the queueing discipline as a pure model."""
