"""Texts, pictures, pages and answers made of records and findings."""
