"""Synchronous: pure cores on a heap of events, without trio, bytes or files, so that many thousands of schedules can be
tried.

This package has quorums of Raft cores; `replicas` has the replicas of a partition. May import kraft.raft,
kraft.control, kraft.broker.replica and all below them, the synchronous parts of kraft.controller and kraft.sim.check,
and no trio.
"""
