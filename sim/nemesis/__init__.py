"""What goes wrong, and when. Pure: the plan of a run as a value, how a seed draws it, its file (`plan`, `drawing`,
`swarm`, `plan_rules`, `plan_file`). Async: who carries its faults out on a simulated cluster under checks (`faults`,
`targets`, `disturbances`, `worn_disks`). Neither, for time is its caller's: the same faults on the clusters of users'
tests (`on_clusters`)."""
