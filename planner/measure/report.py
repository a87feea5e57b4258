"""What measure, import and check print for a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from planner.units import MS


def measured_lines(found: dict[str, Any]) -> Iterable[str]:
    """A measurement (`summary.document`) as lines of text, with its comparison where it has one."""
    summary = found["summary"]
    yield f"{found['endpoint']['model']} at {found['endpoint']['base_url']}, {found['date']}"
    rows = []
    for group in summary["by_prompt_length"]:
        figures = [_ms(group[name]["p50"]) for name in ("ttft_s", "ttft_answer_s", "tpot_s")]
        speed = group["tokens_per_s"]["p50"]
        rows.append([_whole(group["prompt_tokens"]), group["n"], group["failed"], *figures, digits(speed), _whole(group["cached_tokens"])])
    head = ["prompt tokens", "n", "failed", "TTFT p50", "answer p50", "TPOT p50", "tokens/s", "cached tokens"]
    yield from table(head, rows)
    if summary["prefix"]:
        yield summary["prefix"]["sentence"]
    if load := summary["load"]:
        speeds = f"{digits(load['requests_per_s'])} requests/s, {digits(load['output_tokens_per_s'])} output tokens/s"
        tails = f"TTFT p99 {_ms(load['ttft_s']['p99'])}, TPOT p99 {_ms(load['tpot_s']['p99'])}"
        yield f"Load, {load['kind']} {load['value']:g}: {load['n']} answers, {load['failed']} failed, {speeds}, {tails}"
    for error in summary["errors"]:
        yield f"{error['count']} × {error['error']}"
    if summary["retries"]:
        yield f"{summary['retries']} attempts were turned away and repeated after {summary['retry_wait_s']:.1f} s in all"
    yield from summary["notes"]
    if "comparison" in found:
        yield from comparison_lines(found["comparison"])


def comparison_lines(comparison: dict[str, Any]) -> Iterable[str]:
    """Measured rows over the plan's bands, the part that is off, and the factor on offer, as lines of text."""
    rows = (
        [
            c["row"][-40:],
            c["metric"],
            digits(c["measured"]),
            digits(c["low"]),
            digits(c["high"]),
            "in band" if c["agrees"] else f"{c['error']:+.0%}",
        ]
        for c in comparison["rows"]
        if "_" not in c["metric"]
    )
    yield from table(["row", "metric", "measured", "low", "high", "plan against measured"], rows)
    for part in comparison["components"]:
        ratio = f" (measured / planned {part['ratio']:.2f})" if part["ratio"] else ""
        yield f"{part['name']}: {part['verdict']}{ratio}; {part['how']}"
    for skipped in comparison["skipped"]:
        yield f"left out {skipped['row']}: {skipped['reason']}"
    yield from comparison["notes"]
    yield comparison["sentence"]
    if comparison["calibration"]:
        yield f"One factor on step time would bring decode onto the plan: {comparison['calibration']['factor']:.3f}"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterable[str]:
    """Left-aligned columns, line by line."""
    lines = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _ms(value_s: float | None) -> str:
    return "–" if value_s is None else f"{value_s / MS:.4g} ms"


def digits(value: float | None) -> str:
    """Four significant digits; a dash for what is not known."""
    return "–" if value is None else f"{value:.4g}"


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
