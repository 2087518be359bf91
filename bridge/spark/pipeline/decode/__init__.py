"""Decodes payloads of records (key, value) into columns; ``payload_decoder`` has the common interface."""
