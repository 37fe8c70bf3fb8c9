"""Tables of sizes, as perftest prints them: latency, rate of messages, RDMA write and read; TCP beside the first two.

Theory of operation.
1. The server is that of `srd perf client`, and a test begins in the same way (srd.perf). Then the client asks, and the
   server answers each with ANSWER, or ends the test with FAILED:

       SIZE size            the server prepares: keys of the memory that may be written or read, by peer
       BEGIN                what was before is not counted (processor time, dropped datagrams)
       CHECK first, count   --verify, of writes: the clock of the client stops while the server compares a round
       FIGURES count        the size is over; so many messages were sent, have arrived, and each once (--verify)
       END

2. The client alone has a clock. A latency is half of a round trip, as perftest prints it; a rate ends with the last
   completion. SRD completes what was acknowledged; TCP's rate ends when the server has read all, which it says in the
   connection, as a kernel socket has no completions.
3. Payload is random bytes that both ends make (`payload.py`, `rows.py`): what lies in a wrong place is wrong. Memory
   that is written or read has the complement of what is expected before, so that what is missing is wrong, too.
4. SRD runs on the event loop, TCP in a thread with a blocking socket, the fastest way of each. Another package may have
   another carrier (`carrier.py`): it measures in the same way, by parts of `measures.py`, `kernel.py` and `roles.py`.
"""
