"""Synchronous over the seam's Disk: one round of compaction over one log (`round`) and its parts. May import what
kraft.storage imports."""
