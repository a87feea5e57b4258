"""What a plan has to say beside its numbers: a result, never an exception."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]
LONGEST_MESSAGE = 600


def one_line(text: str) -> str:
    """Text, whoever wrote it, as one printable line of readable length: no line breaks, no terminal codes."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding about a plan.

    `error` means the plan cannot run as asked (its prices are withheld), `warning` that a figure must not be trusted
    blindly, `info` that something was assumed.
    """

    code: str
    """Stable slug: does_not_fit, overloaded, unstable, infeasible_slo, illegal_parallelism, low_confidence, stale_price, …"""
    severity: Severity
    field: str
    """Dotted path of the scenario field that is the nearest lever, or an empty string."""
    message: str
    """One sentence for a person, with the values in it."""
    remedy: str = ""
    """The nearest change that would help, or an empty string."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", one_line(self.message))
        object.__setattr__(self, "remedy", one_line(self.remedy))


class InputError(ValueError):
    """Wrong input at a door. The message is one sentence: field, value, what is allowed, what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))
