"""``transform``: the SQL of a pipeline on its good rows; every input row has exactly one outcome.

    decoded rows --classify--> rows with _outcome --written_rows--> the select list, for the sink
                                    |                                 (count the others between the two: observe)
                                    '--dead_rows--> dead letters

    _outcome   WRITTEN    the row is good, and ``where`` is true or absent
               FILTERED   the row is good, and ``where`` is false or null: counted, and written nowhere
               DEAD       ``_dead_stage`` and ``_dead_error`` say why

Theory of operation.  With ANSI (Spark's default) an expression may fail for a value: ``CAST(a AS INT)`` of ``x``.  Then
the whole job fails, and Spark names neither row nor record.  So a batch is written in two ways:

1. ``classify(…)``: as fast as the SQL itself.  If the job fails with an error for which ``is_row_error`` is true,
   nothing was committed, and the batch is written again with
2. ``classify(…, checks_rows=True)``: before a row is written, ``where`` and each expression of ``select`` are evaluated
   for it inside of an expression that gives null for every error.  A row with an error is a dead letter with stage
   ``transform``.  The JVM does that as well; each expression is evaluated twice.

Both ways give the same outcome for a row without an error, so ranges and counts of a batch do not depend on the way.
If the second way fails as well, the error came from elsewhere and is raised.

The second way needs two properties of Spark, which ``test_decoded_frame`` checks.  ``try_to_binary`` becomes
``TryEval``, which catches the errors of everything below it (Spark has no function ``try``).  And a common part of two
expressions is evaluated before both, thus outside of ``TryEval``, unless it is in the branch of a ``CASE``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, StructType, VariantType

from bridge.spark.pipeline.decode.decode_plan import DecodePlan, first_line
from bridge.spark.pipeline.decode.payload_decoder import ERROR_CHARS_MAX
from bridge.spark.pipeline.decode.reserved_columns import DEAD_ERROR, DEAD_STAGE, OUTCOME
from bridge.spark.pipeline.pipeline_file import PipelineFileError
from bridge.spark.pipeline.pipeline_spec import TransformSection
from bridge.spark.pipeline.toml_values import problem

TRANSFORM_STAGE = "transform"
"""The stage of a dead letter for whose values an expression of the file has no result."""

WRITTEN, FILTERED, DEAD = range(3)
"""Values of ``_outcome``: numbers, since each row is compared with them three times."""

_ROW_ERROR_CLASSES = ("22", "42", "P0")
"""Classes of SQLSTATE: a data exception, a wrong format (``to_number``), and ``raise_error``."""

_NOT_ONE_VALUE = (
    "INVALID_WHERE_CONDITION", "UNSUPPORTED_GENERATOR", "WINDOW_FUNCTION", "MISSING_GROUP_BY", "GROUP_BY_AGGREGATE",
)  # fmt: skip
"""Conditions of Spark's errors for an expression that is not evaluated row by row."""

_FAILED = "_failed_expressions"

_SQLSTATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")

_COLUMN_NAME = re.compile(r"(?:\w+|`[^`]+`)(?:\.(?:\w+|`[^`]+`))*")
_STAR_OF_ALL = re.compile(r"\bstruct\s*\(\s*\*\s*\)", re.IGNORECASE)
_STRUCT_STAR = re.compile(r"(.+)\.\s*\*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TransformPlan:
    """The SQL, checked against the decoded columns.

    ``select``: one expression for each column that is written.  ``unhashable``: those whose type ``xxhash64`` does not
    take.  ``columns``: the names of the columns that are written.
    """

    select: tuple[str, ...]
    unhashable: frozenset[str]
    columns: tuple[str, ...]
    where: str | None = None


def plan_transform(decoded: DataFrame, plan: DecodePlan, section: TransformSection) -> TransformPlan:
    """Checks the SQL; starts no job.  ``decoded``: of ``decode``, batch or stream.

    Raises ``PipelineFileError`` with a line for each expression that Spark cannot parse or resolve, that does not give
    exactly one value for each row, or whose column has the name of another one.
    """
    problems: list[str] = []
    select: list[str] = []
    unhashable: set[str] = set()
    columns: list[str] = []
    if section.where is not None:
        problems += _where_problems(decoded, section.where)
    for given in section.select:
        try:
            for expression in _expanded(decoded, plan, given):
                field = decoded.select(sf.expr(expression)).schema.fields[0]
                _ = decoded.filter(sf.struct(sf.expr(expression)).isNotNull()).schema
                select.append(expression)
                columns.append(field.name)
                if _is_unhashable(field.dataType):
                    unhashable.add(expression)
        except PySparkException as error:
            problems.append(problem("transform", "select", f"{given}: {_words(error)}"))
    seen: set[str] = set()
    for name in columns:
        if name.lower() in seen:
            words = f"two columns have the name {name}; give one of them another name with AS"
            problems.append(problem("transform", "select", words))
        seen.add(name.lower())
    if problems:
        raise PipelineFileError(tuple(f"{plan.file}: {' '.join(line.split())}" for line in problems))
    return TransformPlan(tuple(select), frozenset(unhashable), tuple(columns), section.where)


def classify(decoded: DataFrame, plan: TransformPlan, *, checks_rows: bool = False) -> DataFrame:
    """The rows with ``_outcome``.  ``checks_rows``: rows on which the SQL fails are dead letters, too."""
    rows = _checked(decoded, plan) if checks_rows else decoded
    outcome = sf.when(sf.col(DEAD_STAGE).isNotNull(), sf.lit(DEAD))
    if plan.where is not None:
        outcome = outcome.when(_condition(plan.where), sf.lit(WRITTEN)).otherwise(sf.lit(FILTERED))
    else:
        outcome = outcome.otherwise(sf.lit(WRITTEN))
    return rows.withColumn(OUTCOME, outcome)


def written_rows(classified: DataFrame, plan: TransformPlan, *, kept: Sequence[str] = ()) -> DataFrame:
    """What the sink gets: the select list of the rows to write.  ``kept``: columns of the decoded frame beside it."""
    written = classified.filter(sf.col(OUTCOME) == WRITTEN)
    return written.select(*(sf.expr(each) for each in plan.select), *kept)


def dead_rows(classified: DataFrame) -> DataFrame:
    """The dead letters, with all columns of the classified frame."""
    return classified.filter(sf.col(OUTCOME) == DEAD)


def outcome_counts() -> list[Column]:
    """Counts for ``observe`` on the classified frame: ``filtered`` and ``dead``; the sink counts the written rows."""
    return [
        sf.count_if(sf.col(OUTCOME) == outcome).alias(name)
        for outcome, name in ((FILTERED, "filtered"), (DEAD, "dead"))
    ]


def is_row_error(error: BaseException) -> bool:
    """Whether a job failed because an expression has no result for a value; then ``checks_rows`` finds the rows.

    True also for a few errors of other kinds: then the second way fails with the same error.
    """
    return any(state.startswith(_ROW_ERROR_CLASSES) for each in _causes(error) for state in _states(each))


# --- rows on which the SQL fails ----------------------------------------------------------------------------------


def _checked(decoded: DataFrame, plan: TransformPlan) -> DataFrame:
    """The frame, in which rows on which the SQL fails are dead letters."""
    fallible = [each for each in plan.select if not _COLUMN_NAME.fullmatch(each)]
    # Each expression is there once, since nothing in the branch of a CASE is evaluated in common.
    names = [sf.when(_try(each, plan).isNull(), sf.lit(f"select: {each}")) for each in fallible]
    failed = sf.concat_ws("; ", *names)
    if plan.where is not None:
        has_no_result = _try(f"({plan.where})", plan).isNull()
        failed = sf.when(has_no_result, sf.lit(f"where: {plan.where}")).when(_condition(plan.where), failed)
    # In the branch of a CASE, and not deterministic: see the head of this module, and json_columns.
    is_alive = (sf.spark_partition_id() >= 0) & sf.col(DEAD_STAGE).isNull()
    rows = decoded.withColumn(_FAILED, sf.when(is_alive, failed))
    has_failed = sf.col(_FAILED) != ""
    error = sf.substring(sf.concat(sf.lit("no result for this record: "), _FAILED), 1, ERROR_CHARS_MAX)
    return rows.withColumns(
        {
            DEAD_STAGE: sf.when(has_failed, sf.lit(TRANSFORM_STAGE)).otherwise(sf.col(DEAD_STAGE)),
            DEAD_ERROR: sf.when(has_failed, error).otherwise(sf.col(DEAD_ERROR)),
        }
    ).drop(_FAILED)


def _try(expression: str, plan: TransformPlan) -> Column:
    """Null if the expression fails for the row, and never null if it does not."""
    value = sf.expr(expression)
    evaluated = sf.to_json(sf.struct(value)) if expression in plan.unhashable else sf.xxhash64(value).cast("string")
    return sf.try_to_binary(evaluated, sf.lit("utf-8"))


def _is_unhashable(kind: DataType) -> bool:
    match kind:
        case StructType():
            return any(_is_unhashable(field.dataType) for field in kind.fields)
        case ArrayType():
            return _is_unhashable(kind.elementType)
        case _:
            return isinstance(kind, (MapType, VariantType))


# --- errors of the file -------------------------------------------------------------------------------------------


def _condition(where: str) -> Column:
    return sf.expr(f"({where})")  # in brackets "a > 0 and" is an error, and not a column with the name "and"


def _where_problems(decoded: DataFrame, where: str) -> Iterator[str]:
    try:
        kind = decoded.select(_condition(where)).schema.fields[0].dataType
        _ = decoded.filter(_condition(where) if isinstance(kind, BooleanType) else sf.lit(True)).schema
    except PySparkException as error:
        yield problem("transform", "where", f"{where}: {_words(error)}")
    else:
        if not isinstance(kind, BooleanType):
            words = f"{where}: is no condition, its type is {kind.simpleString()}; write a comparison"
            yield problem("transform", "where", words)


def _expanded(decoded: DataFrame, plan: DecodePlan, given: str) -> list[str]:
    """The expression, or those that it means: ``*`` is each decoded column, ``a.*`` each field of a struct.

    ``struct(*)`` has the decoded columns, too: the frame also has the reserved ones.
    """
    columns = ", ".join(map(_quoted, plan.decoded_columns))
    text = _STAR_OF_ALL.sub(lambda _: f"struct({columns})", given.strip())
    if text.startswith("*"):
        names = decoded.select(*map(_quoted, plan.decoded_columns)).select(sf.expr(text)).columns
        return [_quoted(name) for name in names]
    star = _STRUCT_STAR.fullmatch(text)
    if star is not None:
        return [f"{star[1]}.{_quoted(name)}" for name in decoded.select(sf.expr(text)).columns]
    return [text]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _words(error: PySparkException) -> str:
    condition = error.getCondition() or ""
    if condition.startswith(_NOT_ONE_VALUE):
        return (
            "does not give exactly one value for each row; aggregates, window functions and functions like explode "
            "are not supported, remove it"
        )
    return f"{first_line(error)}; correct the expression"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes; Spark's are in an attribute of their own."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = getattr(cause, "_cause", None) or cause.__cause__


def _states(error: BaseException) -> Iterator[str]:
    """The SQLSTATEs that the error has, or names in its text: where Python has no class for an exception of the JVM."""
    state = error.getSqlState() if isinstance(error, PySparkException) else None
    if state is not None:
        yield state
    yield from _SQLSTATE.findall(str(error))
