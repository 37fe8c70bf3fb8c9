"""The receiving half of a peer: reassembly, acknowledgements, admission to memory."""
