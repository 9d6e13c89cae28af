"""Weights and model folders: reading, checking and writing Medusa heads and checkpoints in several engines' layouts."""
