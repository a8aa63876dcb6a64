"""Pure: code that the state machines of all coordinators share: the time of a call, timers, and the partition of a key.

May import nothing of kraft.broker. A coordinator's state is divided into shards, one per partition of its internal
topic: `__consumer_offsets` for groups, `__transaction_state` for transactions.
"""
