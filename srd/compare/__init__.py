"""`srd compare`: a grid of fabrics, transports, conditions, workloads and seeds, measured cell by cell, and its report.

    cli ── runner ── cell ── workers ── worker/    one process in each host's namespace: python -m srd.compare.worker
     |       |   |    ├── outcome                  figures of a cell, from what its workers said
     |       |   |    └── faults · counters        what a cell does to its lab, and what it did to lab and machine
     |       |   └── payload                       the file that a workload sends
     |       └── results                           one line for each finished cell; CSV, JSON
     ├── file ── overrides ── grid ── traffic · fabric    the YAML; parts of it; cells; flows; topologies in a condition
     └── summary ── figures · verdict ── screen · page ── plots     medians; who was fastest, and why; texts, HTML

Fairness is the theory of operation.
1. A cell is one transport on one fabric in one condition with one workload and one seed. Each has a lab of its own,
   built for it and removed after it: no cached route or slow start threshold, no queue and no draw of a loss survives
   from the cell before. The seed decides the hashes of the routers, the losses, and sizes and times of flows,
   so that all transports get the same.
2. One worker program schedules, sends, verifies and counts for all transports. All flows begin at one time on one
   clock, after connections were opened and tried. A file is a flow whose connection is opened when it begins: SRD sends
   it by the code of `srd send` and `srd recv`, encrypted; TCP by sendfile. What landed is read back here.
3. Transports are the innermost loop: A B C D A B C D. So other load on the machine meets all of them.
4. What did not reach its end is a result, with the reason: `timeout` with what had arrived, `failed`, or `n/a` for what
   this machine lacks. Nothing is left out, and nothing is tried again. Only if the lab failed (its relay died, a worker
   was killed), that is no result: the report says so, and the next run measures the cell.

A finished cell is a line in `cells.jsonl`, with a digest of everything that decides it; a second run measures what has
no line.
"""
