"""Pure: consensus. step(input, now) -> Ready. May import kraft.wire and kraft.seam's value types.

`Raft` (raft.py) is the whole interface. It takes one of the values of `inputs` and the time, and returns a `Ready` that
lists what the driver must do, in order. Inside, `core` holds the state and `transitions` changes the role. One module
per role holds its behaviour: `campaign` (prospective and candidate), `leader`, `follower`. `ballots` answers other
nodes' elections, `startup` chooses the first role, `timers` computes the deadlines. `votes`, `log_view` and
`voter_history` are plain arithmetic; the tests compare each with a naive implementation.
"""
