"""Async: runs of scenarios, each from starting its cluster to its verdict, on processes or in virtual time; and
campaigns of several runs.
"""
