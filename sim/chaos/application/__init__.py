"""Async: the user's own program as the workload of a run, and an observer that records from outside what the program
did to its topics.
"""
