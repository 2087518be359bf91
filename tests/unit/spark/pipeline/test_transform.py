"""Which errors of a job come from the values of a row; the SQL itself is tested in a real Spark."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

from pyspark.errors import PySparkException

from bridge.spark.pipeline.transform import is_row_error


class Caused(Exception):
    """As Spark's captured errors: with the cause in an attribute."""

    def __init__(self, cause: BaseException | None) -> None:
        super().__init__("[TASK_WRITE_FAILED] Task failed while writing rows to file:/x. SQLSTATE: 58030")
        self._cause = cause


CAST = PySparkException("[CAST_INVALID_INPUT] The value 'x' cannot be cast to \"INT\". SQLSTATE: 22018")


@pytest.mark.parametrize(
    ("error", "is_of_row"),
    [
        (CAST, True),
        (Caused(CAST), True),
        (Caused(Caused(CAST)), True),
        (PySparkException("[USER_RAISED_EXCEPTION] no. SQLSTATE: P0001"), True),
        (PySparkException("[INVALID_FORMAT.MISMATCH_INPUT] no. SQLSTATE: 42601"), True),
        (RuntimeError("org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING] SQLSTATE: 22023"), True),
        (Caused(None), False),
        (PySparkException("[UNABLE_TO_ACQUIRE_MEMORY] no. SQLSTATE: 53200"), False),
        (OSError("No space left on device"), False),
    ],
)
def test_a_data_exception_anywhere_in_the_causes_is_an_error_of_a_row(error: BaseException, is_of_row: bool) -> None:
    assert is_row_error(error) == is_of_row


def test_a_python_cause_is_looked_at_and_a_circle_of_causes_ends() -> None:
    outer = RuntimeError("the sink failed")
    outer.__cause__ = CAST
    assert is_row_error(outer)
    first, second = Caused(None), Caused(None)
    first._cause, second._cause = second, first
    assert not is_row_error(first)
