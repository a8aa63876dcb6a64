"""Synchronous over the seam's Disk: the state of one log's producers, idempotent and transactional, and its
snapshots.
"""
