"""The `peakplan` command. It imports nothing of the programs it starts, so that `--help` and completion are fast."""
