"""The sending half of a peer: work requests, their order, what is sent next, and what is sent again."""
