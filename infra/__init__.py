"""The AWS fleet that the planner runs on: what is wanted (fleet), and what builds it (constructs, stacks)."""
