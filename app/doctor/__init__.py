"""Looks now for what would go wrong later: each check is a function from a Host to one Finding."""
