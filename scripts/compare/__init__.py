"""`make demo`: one file over one fabric, by SRD and by kernel TCP, in three conditions, with equal measurements.

    cli ── experiment ── transfer ── process ── the daemons: srd recv / send, tcp_file receive / send
     |         |            └── evaluate ── outcome                     (all print `events`)
     |         └── fabric (the lab) · payload (the file) · contestants · conditions
     └── report ── page · plots · screen

Fairness is the theory of operation; the method section of page.html.j2 states it for the reader of a report. All
figures are measured outside the contestants, or have the same definition for all of them: progress and stalls at the
receiver, shares of the paths by the fabric's own counters, completion when the sender knows that all is verified.
"""
