"""`srd sim` and `srd sweep`: experiments with the transports of `srd.sim.transports`, one or a grid of them.

An `Experiment` is data (topology, flows, plan of failures, transport, seed); `run` gives its `ExperimentResult`: when
each flow was complete, and what the links did. The same experiment has the same result, in whatever process it runs.
"""
