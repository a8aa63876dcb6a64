"""Pure: consensus. step(input, now) -> Ready. May import kraft.wire and kraft.seam's value types.

`Raft` (raft.py) is the whole interface: one of the values of `inputs` and the time go in, a `Ready` comes out that
says what must be done and in which order. Inside, `core` holds the state, `transitions` changes the role, and one
module per role says what it does: `campaign` (prospective and candidate), `leader`, `follower`; `ballots` answers other
nodes' elections, `startup` takes the first role, `timers` knows the deadlines. Arithmetic that has a naive twin in the
tests stands alone: `votes`, `log_view`, `voter_history`.
"""
