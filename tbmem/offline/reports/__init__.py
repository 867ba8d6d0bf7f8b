"""Report folders and pages."""
