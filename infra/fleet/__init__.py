"""The definition of a fleet in plain Python: settings, instances, prices, the scaling law. It never imports aws_cdk."""
