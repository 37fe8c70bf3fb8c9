"""`make demo`: one file over one fabric, by SRD and by kernel TCP, in three conditions, measured alike.

    cli ── experiment ── transfer ── process ── the daemons: srd recv / send, tcp_file receive / send
     |         |            └── verdict ── outcome                      (all talk in `events`)
     |         └── fabric (the lab) · payload (the file) · contestants · conditions
     └── report ── page · plots · screen

Fairness is the theory of operation; the method section of page.html.j2 states it for the reader of a report. What is
measured is measured outside the contestants or defined the same for all of them: progress and stalls at the receiver,
shares of the paths by the fabric's own counters, completion as the sender's knowledge that all is verified.
"""
