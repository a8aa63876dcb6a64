"""Async: the user's own program as the workload of a run, and an outside observer that records what the program did to
its topics.
"""
