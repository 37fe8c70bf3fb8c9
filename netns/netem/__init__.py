"""netem: link shapes, tc's notation, and the queue discipline as a pure model."""
