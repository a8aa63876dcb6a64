"""Async: what the clients of a run do, as its plan says: producers and readers, a group, administrators, movers. Stands
on kraft.sim.cluster.cluster, and knows nothing of faults."""
