"""Faults done on purpose to real parts: a small campaign on simulated engines, the real router and the real driver.

Everything measured here is SIMULATED. What counts is that nothing finished is lost, nothing half is counted, and
nothing is left running.
"""
