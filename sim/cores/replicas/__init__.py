"""Synchronous: the replicas of one partition on a heap of events, against the controller's own decisions. May import
what kraft.sim.cores may.

`log` is what a disk holds of a partition, `links` what carries messages, `leading` and `following` the two roles of a
replica, `broker` the life of one broker around them, `controller` the active controller, `world` all of it under one
seed; `witness` is told of everything, `checks` demands, `chaos` is the schedule of faults. The cores are production's:
`kraft.broker.replica`, `kraft.control`, `kraft.image`, the epoch cache of `kraft.storage` and the sessions of
`kraft.controller`. What stands here is the glue that `kraft.broker.roles` and `kraft.controller.command_queue` are in a
node.
"""
