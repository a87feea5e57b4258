"""Sections 10 and 11: how to launch it, and the test it has to pass before it goes live."""

from __future__ import annotations

import json

from planner.export import acceptance, kubernetes, launch, loadtest, support
from planner.export.blocks import Block, Code, Section, Text, missing, table
from planner.export.engines import speculative_config
from planner.export.figures import cell, show
from planner.export.flags import flag_list
from planner.export.subject import Subject

PROGRAMS = {"vllm": "vllm serve", "sglang": "sglang", "trtllm": "trtllm-serve"}


def launching(s: Subject) -> Section:
    """Commands for the three engines, the manifest, and what to watch."""
    if not s.fits:
        return Section(10, "Launch", (missing("Commands", "the plan cannot run"),))
    blocks: list[Block] = []
    for command in launch.commands(s.plan):
        known = flag_list(PROGRAMS[command.engine], support.served_version(s.scenario) if command.engine == "vllm" else None)
        title = f"{launch.TITLES[command.engine]}{f', {command.role} pool' if command.role else ''}"
        blocks.append(Code(f"{command.engine}{'-' + command.role if command.role else ''}", title, "bash", command.text))
        if command.file_text:
            blocks.append(Code(f"{command.engine}-config", f"{command.file_name}, read by it", "yaml", command.file_text))
        checked = f"Arguments checked against the list of {known.program} {known.version} ({known.date})."
        blocks.append(Text(" ".join((*command.notes, checked))))
    blocks += [
        missing(f"{launch.TITLES[engine]} command", f"it does not serve this accelerator: {why}")
        for engine in launch.ENGINES
        if (why := launch.why_not(s.plan, engine))
    ]
    replica = launch.replicas(s.plan)[-1]
    config = speculative_config(replica)
    if config:
        blocks.append(Code("speculative-config", "Speculation, as vLLM reads it", "json", json.dumps(config, indent=2)))
    else:
        blocks.append(missing("Speculation", "it is off"))
    manifest = kubernetes.manifest(s.plan)
    if manifest:
        blocks.append(Code("kubernetes", "Kubernetes", "yaml", manifest))
        blocks.append(Text(" ".join(kubernetes.threshold_notes(s.plan))))
        if any(map(kubernetes.scales, launch.replicas(s.plan))):
            rules = kubernetes.adapter_rules(s.plan)
            blocks.append(Code("prometheus-adapter", "Rules that give the autoscaler its metrics", "yaml", rules))
    else:
        blocks.append(missing("Kubernetes manifest", kubernetes.why_none(s.plan)))
    blocks.append(_alerts(s))
    return Section(10, "Launch", tuple(blocks))


def _alerts(s: Subject) -> Block:
    waiting, cache = kubernetes.METRICS[s.scenario.engine.name]
    slo = s.scenario.slo
    rows = [
        (
            "Requests waiting per replica",
            waiting,
            f"above {kubernetes.queue_threshold(s.plan)} for 2 minutes",
            "add a replica or shed load",
        ),
        (
            "KV pool in use",
            cache,
            f"above {show(kubernetes.cache_threshold(s.plan), 'share')} for 5 minutes",
            "preemptions are near: add a replica",
        ),
        (
            f"TTFT {s.percentile}",
            "histogram of the engine",
            f"above {show(slo.ttft_s, 's')} for 5 minutes" if slo.ttft_s else "no promise",
            "the promise is being broken",
        ),
        (
            f"TPOT {s.percentile}",
            "histogram of the engine",
            f"above {show(slo.tpot_s, 'ms')} for 5 minutes" if slo.tpot_s else "no promise",
            "the promise is being broken",
        ),
        (
            "Arrivals",
            "counter of the engine",
            f"above {show(s.part('throughput').get('capacity_requests_per_s'), 'requests_s')} for 5 minutes",
            "the plan is outgrown: plan again",
        ),
    ]
    return table("alerts", "Alerts", ("What", "Metric", "When", "Then"), rows)


def acceptance_test(s: Subject) -> Section:
    """Three load points with pass bands, and the commands that make the results."""
    points = acceptance.points(s)
    if not points:
        return Section(11, "Acceptance test", (missing("Acceptance test", "nothing was simulated to hold results against"),))
    rows = []
    for p in points:
        for e in p.expect:
            rows.append((p.name, p.load.text, e.words, *(cell(v, e.unit) for v in (e.predicted, e.low, e.high)), e.why))
    heads = ("Point", "Load", "Figure", "Predicted", "Band from", "to", "Where the band comes from")
    blocks: list[Block] = [
        Text(
            "Run before go-live, on the hardware above, one point after the other with the caches cold. A figure "
            "worse than its band fails the point; better ones pass."
        ),
        table("acceptance", "Load points and pass bands", heads, rows),
    ]
    middle = next((p for p in points if p.share == 1.0), points[0])
    for test in loadtest.load_tests(s.scenario, middle.load, middle.tag):
        blocks.append(Code(f"test-{test.client.split()[0]}", f"{test.client} at {middle.name}", "bash", test.text))
        if test.notes:
            blocks.append(Text(" ".join(test.notes)))
    others = [p for p in points if p is not middle]
    if others:
        swaps = "; ".join(f"{p.load.text} for {p.name}, result files tagged {p.tag}" for p in others)
        blocks.append(Text(f"The other points are the same commands at {swaps}."))
    blocks.append(
        Text("Check a result file with: python -m planner check PLAN.json RESULTS.json, where PLAN.json is this plan exported as JSON.")
    )
    blocks.append(
        table(
            "sign-off",
            "Sign-off",
            ("Role", "Name", "Date", "Signature"),
            [(role, "", "", "") for role in ("Infrastructure", "Finance", "Test owner")],
        )
    )
    return Section(11, "Acceptance test", tuple(blocks))
