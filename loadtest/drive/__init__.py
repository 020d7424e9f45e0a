"""How a start is driven under Locust: users, course, workers, live figures."""
