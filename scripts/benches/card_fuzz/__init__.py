"""A hostile program at one virtual function of a card, and good ones at others that must not notice it."""
