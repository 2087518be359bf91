"""Programs as users write them: fully annotated, with imports from the three public modules alone.

``tests/unit/project/test_typed_programs.py`` checks them with ``mypy --strict`` and runs them on fakes.
"""
