"""What cells amount to: paired effects, intervals, outcomes, verdicts, and the error rates of all of it."""
