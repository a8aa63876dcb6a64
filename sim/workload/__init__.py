"""Async: the clients of a run, which carry out the operations of its plan: producers and readers, a group,
administrators, clients that reassign partitions. Uses kraft.sim.cluster.cluster, and knows nothing of faults.
"""
