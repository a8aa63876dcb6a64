"""Pure: the transaction coordinator as a state machine over the records of one `__transaction_state` partition.

May import kraft.broker.shard and kraft.wire. Reading order: `states` (which state may follow which), `records` (the
records in the log), `requests` (requests and their replies), `step` (the work that a call returns to its driver),
`transaction` (one transactional id), `identity` (InitProducerId), `ending` (EndTxn, markers, completion), `coordinator`
(a whole partition).
"""
