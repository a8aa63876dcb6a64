"""Pure: the group coordinator as a state machine over the records of one `__consumer_offsets` partition.

May import kraft.wire. Reading order: `requests` (requests and replies), `step` (what a call returns to its driver),
`records` (the records in the log), `durable` (the state computed from the log), `classic_group` (the state in memory
only), `rebalance`, `joining`, `syncing`, `membership`, `offsets`, `expiry` (the request handlers and transitions), and
`coordinator`, which combines them.
"""
