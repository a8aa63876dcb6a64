"""Async and synchronous: starting nodes on this machine, and the kraft command."""
