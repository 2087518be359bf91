"""What may go wrong in the model world, and how often."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random


@dataclass(frozen=True)
class FaultProfile:
    """What may go wrong, as probabilities a fault step; how slow callers are; how long a packet may take."""

    cut: float = 0.0
    pause: float = 0.0
    crash: float = 0.0
    lose_node: float = 0.0
    lose_registration: float = 0.0
    rewind: float = 0.0
    odd_member: float = 0.0
    refusals: float = 0.0
    slow_caller: float = 0.0
    delay_ms_max: int = 20
    coordinator: float = 0.0


CALM = FaultProfile()
STORM = FaultProfile(
    cut=0.2,
    pause=0.1,
    crash=0.06,
    lose_node=0.05,
    lose_registration=0.03,
    rewind=0.08,
    odd_member=0.05,
    refusals=0.1,
    slow_caller=0.8,
    delay_ms_max=600,
    coordinator=0.08,
)


def storm(seed: int) -> FaultProfile:
    """Some of what a storm may bring: a history with one kind of fault shows what the whole storm would hide."""
    rng = Random(seed)
    return FaultProfile(**{f.name: getattr(STORM, f.name) for f in fields(FaultProfile) if rng.random() < 0.6})
