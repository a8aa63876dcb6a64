"""Async: what goes wrong, and when. The plan of a run is a value: how a seed draws it, its rules and its file are plain
code (`plan`, `drawing`, `swarm`, `plan_rules`, `plan_file`); who carries its faults out on a simulated cluster is not
(`faults`, `disturbances`, `targets`, `worn_disks`), and who does so on real processes too (`on_clusters`)."""
