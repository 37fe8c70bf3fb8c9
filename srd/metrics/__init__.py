"""What a running endpoint tells about itself over HTTP: metrics for Prometheus, and the state that `srd top` shows.

Theory of operation.
1. The endpoint's loop serves it (`netns.base.http_server`), since only there its counters stand still. It does little
   at a time: the peers are read some at a time (`snapshot`), what is read becomes text in a thread (`exposition`).
2. Nothing that a client does takes more than a bounded part of that: few connections at a time, one small request on
   each, a deadline for all of it; and a snapshot serves all who ask within `MAX_AGE_S`.
3. Cardinality is bounded: counters of the endpoint are sums over all its peers, also those that have ended; series of
   their own have at most `MAX_LISTED_PEERS` of the open peers. Nothing is kept of a peer that has ended.
4. Counters have EFA's names where EFA's driver has them (`srd.stats`), with the prefix srd_.
5. It is neither encrypted nor authenticated, as is usual for metrics: listen on a loopback or management address.
"""
