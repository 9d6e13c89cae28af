"""`peakplan value`: what came of plans, from the files that the service keeps of plans and events (docs/value.md)."""
