"""What an operator runs against the account: deploys, rollbacks, checks and moves of cells."""
