"""A volume server: keeps replicas of volumes on a disk, and serves them to one writer at a time.

    service     the process: volumes in a directory
    connection  one writer: its commands in, replies and data out
    disk_sync   when a file is synchronised at once
    replica   what a command may do, and does: epochs, lease, group commit
    store     blocks and what is known of them, one volume's
    wal       the write-ahead log: what makes a write whole
    entries   what is known of a block: version, kind, checksum
    disk      files; the layer in which tests let a disk fail
    ledger    volumes, epochs, marks: SQLite

Rules.
1. A write is acknowledged when its record is on the disk (`fdatasync`): flushed or not, so FLUSH and FUA add nothing.
2. A block is read whole, as it was written at one version, or not at all.
3. After a failed `fdatasync` nothing is known of the page cache: the store stops, and what it has acknowledged is
   replayed from the log at the next start (Rebello et al., "Can Applications Recover from fsync Failures?", 2020).
"""
