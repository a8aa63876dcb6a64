"""Pure: checks of share groups (KIP-932).

`steps` has the observations: what the leaders of share partitions do, step by step, and what their clients report.
`ledger` has the states of share partitions as the committed records of `__share_group_state` have them, and `leaders`
what each leader must know by its steps. `feed` keeps both up to date, and turns the steps into `events` with the facts
that the checks judge: deliveries and sessions (`deliveries`), and what is persisted (`persistence`).
"""
