"""Synchronous over the seam's Disk: the three indexes of a segment, and the file format that they share."""
