"""Async: a run of a scenario from its cluster to its verdict, on processes and in virtual time; campaigns of runs."""
