"""Async: carry out the roles that the metadata assign to this broker: leading and following, in-sync changes, directory
assignments. `replica_manager` assembles the data plane.

May import kraft.broker.following, kraft.broker.api.fetch and below.
"""
