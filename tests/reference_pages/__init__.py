"""The generators of the reference pages, one for each page; ``tests/generate_docs.py`` calls them."""
