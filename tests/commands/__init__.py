"""Every command against every failure: exit code, text and JSON."""
