"""Pure: decisions about topics: creation, deletion, more partitions, and where their replicas go."""
