"""The files of other engines: Medusa heads and checkpoints in their layouts, read, checked and written."""
