"""The AWS fleet that the planner runs on: its definition (fleet) and the code that builds it (constructs, stacks)."""
