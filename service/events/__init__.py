"""What happened after plans: events as shops report them, kept so that nothing acknowledged is lost."""
