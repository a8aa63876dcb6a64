"""Synchronous: `make demo`, a cluster that is killed under a real client. Not a test: a thing to look at, with an exit
code that says whether anything was lost or doubled."""
