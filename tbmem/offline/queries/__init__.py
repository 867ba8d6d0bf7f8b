"""Answers for the tab's routes, with caches."""
