"""Synchronous: cores alone on a heap of events: no trio, no bytes, no files, so that many thousands of schedules can be
tried. Quorums of raft cores stand here, the replicas of a partition in `replicas`. May import kraft.raft,
kraft.control, kraft.broker.replica and what lies below them, of kraft.controller and kraft.sim.check what is
synchronous, and no trio."""
