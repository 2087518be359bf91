"""JSON without a rescued column: Spark's ``from_json``, in the JVM; what does not fit is a dead letter.

    payload --text--> {"_json":[payload,null]} --from_json, once a row--> parsed --> value | is bad, error

A record is a dead letter if it is not UTF-8, not exactly one JSON object, or if a field has another type than the
schema; unknown fields are passed over.  A record without a payload is good, and its columns are null.

Why the payload is wrapped.  ``from_json`` reads the first JSON value of a text and does not look at the rest: it takes
``{"v":1} trailing`` and ``{"v":1}{"v":2}`` for good records, and an empty text for null.  In an array the rest is
syntax of the array: the record is good if the array has exactly two elements, the second of which is the null of the
wrapping.  A corrupt-record column is beside the array, and ``PERMISSIVE`` fills it for broken JSON, and for a value
that does not fit its type at any depth; without that column the value would be a silent null.

Why the text has a condition that is always true.  The optimizer moves a filter on the error below the projection, and
``from_json`` is evaluated twice for each row (1.93 s instead of 1.4 s for 400,000 rows).  ``spark_partition_id()`` is
not deterministic for the optimizer, so it moves and repeats nothing that depends on it.

Differences from ``rescued_json`` about what is a dead letter (each has a test in ``test_decoded_frame``):

    a field of another type, also one of two equal keys       here: dead letter    there: rescued
    the strings "NaN" and "Infinity" in float, double          here: dead letter    there: the number
    an array or a map with one element that does not fit       here: dead letter    there: rescued as a whole
    501 to 998 levels                                          here: good           there: dead letter
    a number of 1,001 to 4,300 digits                          here: dead letter    there: rescued or converted
    a payload that closes the wrapping array itself, with a    here: good           there: dead letter
    null in front, and opens another (``{},null],"x":[1``)

Values that ``from_json`` changes, and that ``rescued_json`` rescues: 128 to 255 as TINYINT are -128 to -1, half a
surrogate pair is ``?``, integers that overflow as TIMESTAMP wrap around.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from bridge.spark.pipeline.decode.payload_decoder import ERROR_CHARS_MAX

NOT_UTF8 = "not UTF-8"
BROKEN = "broken JSON, or more than one value"
NO_OBJECT = "the payload is no JSON object"
MISFIT = "a field has another type than the schema"

MISFIT_PATHS_MAX = 50
"""The maximum number of fields that are looked for when an error names the one that does not fit."""

_WRAPPED = "_json"
_CORRUPT = "_corrupt"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def evaluated_once(column: Column) -> Column:
    """The column, in a form that the optimizer neither repeats nor moves; see the head of this module."""
    return sf.when(sf.spark_partition_id() >= 0, column)


def parsed_json(text: Column, fields: StructType) -> Column:
    """What ``json_value``, ``is_bad_json`` and ``json_error`` read.  ``text``: the payload as a string; null: none."""
    wrapped = sf.concat(sf.lit(f'{{"{_WRAPPED}":['), text, sf.lit(",null]}"))
    schema = StructType([StructField(_WRAPPED, ArrayType(fields)), StructField(_CORRUPT, StringType())])
    return sf.from_json(wrapped, schema, _OPTIONS)


def json_value(parsed: Column) -> Column:
    """The struct of the fields.  Has a meaning only where ``is_bad_json`` is not true."""
    return sf.get(parsed[_WRAPPED], sf.lit(0))


def is_bad_json(parsed: Column, has_text: Column, is_utf8: Column) -> Column:
    """Whether the record is a dead letter: a few comparisons, no text is read again."""
    elements = parsed[_WRAPPED]
    is_bad = (
        ~is_utf8
        | parsed[_CORRUPT].isNotNull()
        | json_value(parsed).isNull()
        | (sf.size(elements) != 2)
        | sf.get(elements, sf.lit(1)).isNotNull()
    )
    return has_text & is_bad


def json_error(parsed: Column, text: Column, is_utf8: Column, fields: StructType) -> Column:
    """Why the record is a dead letter.  Has a meaning only where ``is_bad_json`` is true."""
    value = json_value(parsed)
    is_misfit = value.isNotNull() & parsed[_CORRUPT].isNotNull()
    return (
        sf.when(~is_utf8, sf.lit(NOT_UTF8))
        .when(is_misfit, _misfit_error(value, text, fields))
        .when(sf.ltrim(text).startswith("{"), sf.lit(BROKEN))
        .otherwise(sf.lit(NO_OBJECT))
    )


def _misfit_error(value: Column, text: Column, fields: StructType) -> Column:
    """The error with the names of the fields that the record has and the parsed value has not.

    The expression has one size for every schema: it looks up each path of a list in both texts.
    """
    paths = misfit_paths(fields)
    if not paths:
        return sf.lit(MISFIT)
    places = sf.array(*(sf.struct(sf.lit(path).alias("path"), sf.lit(shown).alias("shown")) for path, shown in paths))
    parsed = sf.to_json(value)
    lost = sf.filter(places, lambda each: _at(text, each["path"]).isNotNull() & _at(parsed, each["path"]).isNull())
    names = sf.array_join(sf.transform(lost, lambda each: each["shown"]), ", ")
    named = sf.substring(sf.concat(sf.lit(f"{MISFIT}: "), names), 1, ERROR_CHARS_MAX)
    return sf.when(names == "", sf.lit(MISFIT)).otherwise(named)


def _at(json_text: Column, path: Column) -> Column:
    """The value at a path; null also for the JSON value null.  ``functions.get_json_object`` takes no column."""
    return sf.call_function("get_json_object", json_text, path)


def misfit_paths(fields: StructType) -> list[tuple[str, str]]:
    """The path of each field, for ``get_json_object``, and its name with its type, for an error."""
    found = _paths(fields, "$", "")
    return [pair for pair, _ in zip(found, range(MISFIT_PATHS_MAX), strict=False)]


def _paths(fields: StructType, path: str, name: str) -> Iterator[tuple[str, str]]:
    for each in fields:
        if "'" in each.name or "]" in each.name:
            continue  # a path of get_json_object cannot have it
        its_path, its_name = f"{path}['{each.name}']", f"{name}.{each.name}" if name else each.name
        kind: DataType = each.dataType
        if isinstance(kind, StructType):
            yield from _paths(kind, its_path, its_name)
        yield its_path, f"{its_name} ({kind.simpleString()[:100]})"
