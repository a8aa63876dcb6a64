"""The admin listener of a node: its HTTP without a node, and its pages on nodes in a world and in a real process."""
