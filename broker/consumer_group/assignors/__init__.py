"""Pure: the server-side assignors of consumer groups, which compute the target assignment of every member.

May import nothing of kraft.broker. Reading order: `members` (input and output of an assignor), `claims` (the input by
topic, and how partitions are handed out so that members keep what they own), `equal_subscriptions` and
`mixed_subscriptions` (how many partitions of each topic a member gets), `uniform` and `contiguous` (the assignors),
`names` (the assignor for each name in `group.consumer.assignors`).
"""
