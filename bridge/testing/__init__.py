"""For tests of whoever feeds Spark from a group: the judge of what a query and the group's other members did."""

from bridge.testing.feed_judge import CODES, Feed, Finding, Judgement, Read, Sunk, judge

__all__ = ["CODES", "Feed", "Finding", "Judgement", "Read", "Sunk", "judge"]
