"""What we want of a fleet, in plain Python: settings, instances, prices, the scaling law. Never imports aws_cdk."""
