"""Pure: checks of consumer groups (KIP-848), and of groups that change between the two protocols.

`ledger` has the groups as the committed records of `__consumer_offsets` have them, and `feed` keeps it up to date. The
checks compare with it what coordinators remember (`states`), what they answer to heartbeats and commits (`answers`),
and who owns partitions (`owners`).
"""
