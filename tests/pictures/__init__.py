"""The drawings of the pages, as SVG: ``tests/generate_docs.py`` writes them.  Pure."""
