"""Measuring between two machines as iperf3 does: SRD, and kernel TCP and MPTCP over the same addresses.

Theory of operation.
1. The client opens a peer, and on it one byte stream: the control channel (`control.py`). So a server needs one UDP
   port, and whatever it may be told is encrypted and authenticated as everything else is. The control messages, with
   who sends them:

       client                                   server
       TEST parameters           ------>
                                 <------        READY cookie, or REFUSED reason (it serves one test at a time)
       JOIN cookie, stream       ------>        SRD: on a peer of its own for each stream; TCP: a connection to the same
                                                port, which begins with the cookie
                                 <------        START, once all have joined
                                 <------        FINISHED, when the server has sent all it was to send (-n, in reverse)
       END sent                  ------>        bytes that the client has sent, by stream
                                 <------        RESULTS sent, figures, and the server's own output if it was wanted
                                 <------        FAILED reason, instead of any of these

2. Both ends sample the counters of their streams (`meter.py`). A sender counts what was acknowledged (SRD) or written
   (TCP), a receiver what has arrived. The receiving end waits for all that the other end says that it has sent.
3. SRD is measured by messages of `-l` bytes, which are posted as others complete, from memory that stays in the cache
   (`payload.py`, `srd_streams.py`); TCP by blocking sockets in threads, which release the interpreter while the kernel
   copies (`tcp_streams.py`).
4. The report has iperf3's schema (`iperf_json.py`) and iperf3's lines (`text.py`).
5. A test of many sizes, as perftest's, begins in the same way, with the sweep in the place of parameters; from START on
   the client asks and the server answers (`sweep/`).
"""
