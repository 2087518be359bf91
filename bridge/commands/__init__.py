"""Commands of ``zkconsumer`` that feed other systems; found by the entry points in ``setup.py``.

Nothing heavy is imported here: ``zkconsumer --help`` loads each of them.
"""
