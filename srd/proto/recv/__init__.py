"""The receiving half of a peer: reassembly, acknowledgements, pulls, answers to requests."""
