"""What virtual functions of every kind have in common: an endpoint, and peers that were introduced.

`endpoint` is the engine of a virtual function; `introduction` the first messages over a peer, and the proofs in them;
`outgoing` the peers that this end opens, `incoming` those that others have opened; `tenancy` whom it may talk to, by
the `mapping` of the control plane where there is one; `attestation` what other cards must prove.
"""
