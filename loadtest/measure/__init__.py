"""What raw rows and server samples amount to: steady windows, reconciliation, goodput."""
