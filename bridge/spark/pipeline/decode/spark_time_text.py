"""Parses the texts of dates and time stamps as ``from_json`` of Spark 4.3 does with no format set.  Pure.

The rules are those of ``SparkDateTimeUtils`` (``stringToDate``, ``parseTimestampString``, ``getZoneId``) and of the
fallback in ``JacksonParser``:

    date           [+-]y{4,7}[-[m]m[-[d]d[( |T)anything]]], or a number of days since 1970 that is no such date
    time stamp     [+-]y{4,6}[-[m]m[-[d]d[( |T)[h]h[:[m]m[:[s]s[.digits][zone]]]]]]
    zone           Z, UTC, GMT, UT; +|-h[h][:mm[:ss]], +|-hhmm[ss], also after UTC, GMT, UT; a region (Europe/Paris) or
                   a short id of Java (PST); without one: the time zone of the session

Blanks and control characters around are removed; digits after the microseconds are cut off; a text with "GMT" is also
tried without it.  In the gap of a change to summer time the clock goes forward, in the overlap the first time counts.

Differences.  A time without a date ("03:04:05") is no time stamp here: Spark takes the day on which the query runs, and
a batch that is repeated would give other rows.  A number of days before 1582-10-15 is no date here: Spark takes it as
one of the Julian calendar.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

_BLANKS = "".join(map(chr, [*range(0x21), 0x7F]))
"""What Spark removes around a text."""

_DATE = re.compile(r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})"
    r"(?::([0-9]{1,2})(?:\.([0-9]*))?(.*)?)?)?)?)?)?",
    re.DOTALL,
)
_COMMON_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?Z", re.ASCII
)
"""The form that most programs write; it needs no time zone."""

_DAYS = re.compile(r"[+-]?\d+")
_OFFSET = re.compile(r"([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
_SINGLE_DIGIT_MINUTE = re.compile(r"([+-][0-9]{2}):([0-9])")
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+")

_INT_MAX = 2**31 - 1
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_DAY_S = 86_400
_GREGORIAN_DAYS_MIN = -141_427
"""1582-10-15, the first day of the calendar in Java's hybrid calendar."""

_DAYS_OF_400_YEARS = 146_097
_OFFSET_SECONDS_MAX = 18 * 3600

_SHORT_IDS = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh", "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip
"""``java.time.ZoneId.SHORT_IDS`` of Java 17."""


@lru_cache(maxsize=4096)
def zone_of(name: str) -> tzinfo | None:
    """The time zone of a name in a text, or of the session; None if there is no such zone."""
    name = _SINGLE_DIGIT_MINUTE.sub(r"\1:0\2", name) if _SINGLE_DIGIT_MINUTE.fullmatch(name) else name
    name = _SHORT_IDS.get(name, name)
    if name == "Z":
        return UTC
    for prefix in ("UTC", "GMT", "UT", ""):
        rest = name.removeprefix(prefix)
        if name.startswith(prefix) and rest != name and not rest:
            return UTC
        if name.startswith(prefix) and rest[:1] in ("+", "-"):
            return _offset_of(rest)
    if not _REGION.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (OSError, ValueError):  # there is no such file (ZoneInfoNotFoundError is a KeyError), or it is a folder
        return None
    except KeyError:
        return None


def _offset_of(text: str) -> tzinfo | None:
    found = _OFFSET.fullmatch(text)
    if found is None:
        return None
    sign, hours, minutes, seconds = found.groups(default="0")
    total = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    if total > _OFFSET_SECONDS_MAX or int(minutes) > 59 or int(seconds) > 59:
        return None
    return timezone(timedelta(seconds=total if sign == "+" else -total))


def parse_date(text: str) -> int | None:
    """Days since 1970; None if the text is no date."""
    found = _date(text.strip(_BLANKS))
    if found is None:
        found = _date(text.replace("GMT", "").strip(_BLANKS))
    if found is not None:
        return found
    if _DAYS.fullmatch(text) and len(text) <= 20:
        days = int(text)
        if _GREGORIAN_DAYS_MIN <= days <= _INT_MAX:
            return days
    return None


def _date(text: str) -> int | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day = found.groups(default="1")
    return days_of(int(year), int(month), int(day))


def parse_timestamp(text: str, session_zone: tzinfo) -> int | None:
    """Microseconds since 1970 in UTC; None if the text is no time stamp."""
    common = _COMMON_TIMESTAMP.fullmatch(text)
    if common is not None:
        year, month, day, hour, minute, second, fraction = common.groups()
        local = _micros(days_of(int(year), int(month), int(day)), int(hour), int(minute), int(second), fraction or "")
        if local is not None:
            return local
    found = _timestamp(text, session_zone)
    return _timestamp(text.replace("GMT", ""), session_zone) if found is None and "GMT" in text else found


def parse_local_timestamp(text: str) -> int | None:
    """Microseconds since 1970 of a time stamp without a time zone; None for another text, also one with a zone."""
    found = _TIMESTAMP.fullmatch(text.strip(_BLANKS))
    return None if found is None or found[8] else _local_micros(found)


def _timestamp(text: str, session_zone: tzinfo) -> int | None:
    found = _TIMESTAMP.fullmatch(text.strip(_BLANKS))
    if found is None:
        return None
    local = _local_micros(found)
    zone = zone_of(found[8].strip(_BLANKS)) if found[8] else session_zone
    if local is None or zone is None:
        return None
    micros = local - 1_000_000 * _offset_seconds(zone, local)
    return micros if _LONG_MIN <= micros <= _LONG_MAX else None


def _local_micros(found: re.Match[str]) -> int | None:
    year, month, day, hour, minute, second, fraction, _ = found.groups()
    days = days_of(int(year), int(month or 1), int(day or 1))
    return _micros(days, int(hour or 0), int(minute or 0), int(second or 0), fraction or "")


def _micros(days: int | None, hour: int, minute: int, second: int, fraction: str) -> int | None:
    if days is None or hour > 23 or minute > 59 or second > 59:
        return None
    seconds = days * _DAY_S + hour * 3600 + minute * 60 + second
    return seconds * 1_000_000 + int(fraction[:6].ljust(6, "0"))


def _offset_seconds(zone: tzinfo, local_micros: int) -> int:
    """The offset of the zone at a local time of any year.

    Python has the years 1 to 9999.  Before them every zone has its mean local time; after them the rules of a zone
    repeat every 400 years.
    """
    seconds = local_micros // 1_000_000
    cycle_s = _DAYS_OF_400_YEARS * _DAY_S
    if seconds >= _YEAR_9999_S:
        seconds -= ((seconds - _YEAR_9999_S) // cycle_s + 1) * cycle_s
    local = _EPOCH + timedelta(seconds=max(seconds, _YEAR_2_S))
    offset = zone.utcoffset(local.replace(tzinfo=zone))
    assert offset is not None, "a ZoneInfo and a timezone have an offset at each time"
    return round(offset.total_seconds())


@lru_cache(maxsize=4096)
def days_of(year: int, month: int, day: int) -> int | None:
    """Days since 1970 in the Gregorian calendar of ISO 8601, for any year; None if there is no such day."""
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    cycles, year_in_cycle = divmod(year - 2000, 400)
    try:
        ordinal = datetime(2000 + year_in_cycle, month, day).toordinal()
    except ValueError:
        return None
    return ordinal - _EPOCH.toordinal() + cycles * _DAYS_OF_400_YEARS


_EPOCH = datetime(1970, 1, 1)
_YEAR_2_S = (datetime(2, 1, 1) - _EPOCH).days * _DAY_S
_YEAR_9999_S = (datetime(9999, 1, 1) - _EPOCH).days * _DAY_S
