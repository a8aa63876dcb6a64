"""Async: faults and their times.

The plan of a run is a value. How a seed draws it, its rules and its file are plain code (`plan`, `drawing`, `swarm`,
`plan_rules`, `plan_file`). The code that carries out faults is async: on a simulated cluster (`faults`, `disturbances`,
`targets`, `worn_disks`), and also on real processes (`on_clusters`).
"""
