"""Seeded shoppers, who ask a real service, look at what it shows them, click, buy and come back."""
