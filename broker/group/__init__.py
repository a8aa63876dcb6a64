"""Pure: the group coordinator as a state machine over the records of one `__consumer_offsets` partition.

May import kraft.broker.consumer_group, kraft.broker.shard and kraft.wire. Reading order: `requests` (requests and
replies), `step` (the work that a call returns to its driver), `records` (the records in the log), `durable` and
`staged` (the state computed from the log), `classic_group` (the state in memory only). Then `rebalance`, `joining`,
`syncing`, `membership`, `offsets` and `expiry` (the request handlers and transitions), `consumer_groups` and
`consumer_offsets` (those of the next-generation protocol), and `coordinator`, which combines them.
"""
