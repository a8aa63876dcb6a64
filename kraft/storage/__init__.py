"""Synchronous over the seam's Disk: logs, segments, indexes, epochs, producer state, checkpoints, snapshots, recovery. May import kraft.wire and kraft.seam."""
