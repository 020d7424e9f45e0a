"""Results of other load clients, read and judged by the same statistics."""
