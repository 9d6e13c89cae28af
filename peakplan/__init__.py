"""The `peakplan` command. It imports nothing of what it starts, so that `--help` and completion answer at once."""
