"""Share groups of the Java client, as lines of the benchmark."""
