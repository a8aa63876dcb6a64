"""The metrics of a node: each name in the table exists on running nodes, and the code that it counts moves it."""
