"""What a measured row says of the server it was measured on, held against a scenario: the scenario as that server runs it, or why not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from planner import architecture
from planner.measure.rows import SPECULATION, UNKNOWN_METHOD, Row, with_context
from planner.problems import InputError
from planner.scenario import Model, Scenario, parse
from planner.validate import names
from planner.validate.speculation import rates_for_length

LAYOUT = {"tp": "tensor_parallel_size", "pp": "pipeline_parallel_size", "dp": "data_parallel_size"}
RATES = re.compile(r"acceptance by position ((?:\d(?:\.\d+)?(?:, )?)+)")
LENGTH = re.compile(r"acceptance length (\d+(?:\.\d+)?)")
LEAST_LETTERS = 3
SIXTEEN_BIT = {"bf16", "fp16"}
SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)b(?![a-z])")


def as_measured(scenario: Scenario, row: Row) -> tuple[Scenario, str]:
    """The scenario with the model, layout, precision and speculation that the row states, and a sentence on what differs (or nothing).

    What the row leaves open stays the scenario's. Raises InputError where the row is of another GPU or engine, or states something that
    cannot be planned.
    """
    _same_server(scenario, row)
    data: dict[str, Any] = {}
    differs: list[tuple[str, str]] = []
    model = _model(scenario, row)
    if model is not None:
        data["model"] = model.model_dump(mode="json")
        differs.append((model.name, scenario.model.name))
    differs += _layout(scenario, row, data)
    differs += _precision(scenario, row, data, other_model=model is not None)
    differs += _speculation(scenario, row, data)
    if not data:
        return scenario, ""
    ours, theirs = (", ".join(side) for side in zip(*differs, strict=True)) if differs else ("", "")
    try:
        found = parse(scenario.model_dump(mode="json") | data)
    except InputError as error:
        raise InputError(f"{_name(row)} is of {ours}, which cannot be planned: {error}") from None
    return found, f"{_name(row)} is of {ours} (the plan: {theirs}); it is laid over a plan of that." if differs else ""


def conflicts(scenario: Scenario, row: Row) -> str:
    """Why the row cannot stand for the scenario itself, as one sentence; nothing where it can."""
    try:
        return as_measured(scenario, row)[1].partition("; it is laid")[0]
    except InputError as error:
        return str(error)


def filled(rows: Iterable[Row], said: Mapping[str, Any], scenario: Scenario | None = None) -> list[Row]:
    """The rows with what the user said of the server, and then the scenario, filled in where they do not say themselves."""
    known = with_context(rows, said)
    if scenario is None:
        return known
    found = []
    for row in known:
        try:
            found += with_context([row], context(scenario, row))
        except InputError:
            found.append(row)  # of another server, as the comparison will say
    return found


def context(scenario: Scenario, row: Row) -> dict[str, Any]:
    """What a row leaves open of its server, as the scenario has it; nothing of the layout or the precision where the row is of another."""
    known: dict[str, Any] = {
        "engine": scenario.engine.name,
        "engine_version": scenario.engine.version,
        "gpu": scenario.hardware.gpu,
        "spec_decode": scenario.speculative.method if scenario.speculative else "none",
    }
    _same_server(scenario, row)
    other_model = _model(scenario, row) is not None
    layout = {name: getattr(scenario.parallel, field) for name, field in LAYOUT.items()} | {"n_gpu": scenario.gpus}
    if not other_model and all(row.get(name) in (None, value) for name, value in layout.items()):
        known |= layout
    if not other_model:
        known |= {"weight_precision": scenario.precision.weights, "kv_precision": scenario.precision.kv_cache}
    return known


def _same_server(scenario: Scenario, row: Row) -> None:
    split = scenario.disaggregation
    if str(row.get("disagg") or "").strip().lower() in ("true", "1", "yes") and split is None:
        raise InputError(f"{_name(row)} is of disaggregated pools, the plan has none; compare it with a plan of its own (disaggregation)")
    gpus = {split.prefill.gpu, split.decode.gpu} if split else {scenario.hardware.gpu}
    engines = {split.prefill.engine.name, split.decode.engine.name} if split else {scenario.engine.name}
    if label := row.get("gpu"):
        letters = re.sub(r"[^a-z0-9]", "", label.lower())
        # A bare family name (H100) is any of its parts.
        alike = any(len(letters) >= LEAST_LETTERS and re.sub(r"[^a-z0-9]", "", slug).startswith(letters) for slug in gpus)
        if not alike and names.gpu_slug(label) not in gpus:
            raise InputError(
                f"{_name(row)} is of GPU {label}, the plan of {' and '.join(sorted(gpus))}; compare it with a plan of its own GPU"
            )
    if (label := row.get("engine")) and names.engine_name(label) not in engines:
        raise InputError(
            f"{_name(row)} is of engine {label}, the plan of {' and '.join(sorted(engines))}; compare it with a plan of its own engine"
        )


def _model(scenario: Scenario, row: Row) -> Model | None:
    """The row's model where it is another than the scenario's; None where it is the same, or a name that says nothing."""
    label = row.get("model")
    own = scenario.model.name.lower()
    if not label or own in names.plain_names(label) or names.plain_names(own)[-1] in names.plain_names(label):
        return None
    found = names.model_of(label, None)
    if found is None:
        # A served name may be anything, but one that states another size is another model.
        sizes, ours = (set(SIZE.findall(text.lower())) for text in (label, own))
        if sizes and ours and not sizes & ours:
            raise InputError(
                f"{_name(row)} is of model {label[:80]}, the plan of {scenario.model.name}, and the catalogue does not know the former; "
                "compare it with a plan of its own model (model.hf_config)"
            )
        return None
    return None if _same_shape(found, scenario.model) else found


def _same_shape(a: Model, b: Model) -> bool:
    """Two releases of one architecture cost the same to serve."""
    one, other = architecture.of(a), architecture.of(b)
    return (one.layers, one.hidden_size, one.vocab_size) == (other.layers, other.hidden_size, other.vocab_size)


def _layout(scenario: Scenario, row: Row, data: dict[str, Any]) -> list[tuple[str, str]]:
    if scenario.disaggregation is not None:
        return []
    plan = {name: getattr(scenario.parallel, field) for name, field in LAYOUT.items()}
    stated = {name: round(row[name]) for name in LAYOUT if row.get(name)}
    if stated.get("tp") == plan["tp"] * plan["dp"] and plan["dp"] > 1:
        # SGLang's tensor parallel size counts the ranks that share attention data parallelism.
        stated.pop("tp")
    if "dp" in stated and stated["dp"] > 1 and not scenario.parallel.enable_expert_parallel:
        stated.pop("dp")  # plain copies are replicas
    layout = plan | stated
    per_replica = layout["tp"] * layout["pp"] * layout["dp"]
    gpus = round(row.get("n_gpu") or 0)
    replicas = max(1, gpus // per_replica) if gpus else scenario.fleet.replicas
    differs: list[tuple[str, str]] = []
    if layout != plan:
        data["parallel"] = scenario.parallel.model_dump(mode="json") | {LAYOUT[name]: value for name, value in layout.items()}
        differs.append((_words(layout), _words(plan)))
    if replicas != scenario.fleet.replicas:
        data["fleet"] = scenario.fleet.model_dump(mode="json") | {"replicas": replicas}
        differs.append((f"{replicas} replica{'s' * (replicas > 1)}", f"{scenario.fleet.replicas}"))
    return differs


def _words(layout: Mapping[str, int]) -> str:
    return " × ".join(f"{name.upper()}{size}" for name, size in layout.items() if size > 1 or name == "tp")


def _precision(scenario: Scenario, row: Row, data: dict[str, Any], other_model: bool) -> list[tuple[str, str]]:
    label, kv_label = (row.get("weight_precision") or "").lower(), (row.get("kv_precision") or "").lower()
    if label not in names.WEIGHTS:
        raise InputError(
            f"{_name(row)} has weights in {label!r}, which is not modelled; known are {', '.join(filter(None, names.WEIGHTS))}"
        )
    weights, kv = names.WEIGHTS[label] if label else "", names.KV.get(kv_label, "")
    plan = scenario.precision
    if not weights or weights == "auto":
        weights = "auto" if other_model else plan.weights
    own = architecture.of(scenario.model).quantization
    stored = own.weights if own else "bf16"
    alike = SIXTEEN_BIT | {"auto"} if stored in SIXTEEN_BIT else {stored, "auto"}
    same = weights == plan.weights or {weights, plan.weights} <= SIXTEEN_BIT or (not other_model and {weights, plan.weights} <= alike)
    changed = {} if same else {"weights": weights}
    if kv and kv != plan.kv_cache and not {kv, plan.kv_cache} <= SIXTEEN_BIT | {"auto"}:
        changed["kv_cache"] = kv
    if changed:
        data["precision"] = plan.model_dump(mode="json") | changed
    return [(f"{value} {field.replace('_', ' ')}", getattr(plan, field)) for field, value in changed.items()]


def _speculation(scenario: Scenario, row: Row, data: dict[str, Any]) -> list[tuple[str, str]]:
    label = (row.get("spec_decode") or "").lower().strip()
    spec = scenario.speculative
    if label == "none":
        if spec is not None:
            data["speculative"] = None
            return [("no speculation", spec.method)]
        return []
    found = SPECULATION.fullmatch(label)
    if found is None:
        if not label or "none" in label or "not stated" in label:
            return []
        raise InputError(f"{_name(row)} has spec_decode {label[:40]!r}, which is not modelled; write none or a method, as in eagle3-3")
    if spec is None or found[1] not in (UNKNOWN_METHOD, spec.method):
        ours = spec.method if spec else "none"
        told = "drafts of an unnamed method" if found[1] == UNKNOWN_METHOD else found[1]
        raise InputError(
            f"{_name(row)} was measured with speculation ({told}), the plan has {ours}; compare it with a plan that speculates so"
        )
    rates = measured_rates(row, int(found[2] or spec.num_speculative_tokens))
    if rates:
        changed = {"acceptance_rates": list(rates), "acceptance_rate": None, "num_speculative_tokens": len(rates)}
        data["speculative"] = spec.model_dump(mode="json") | changed
    elif found[2] and int(found[2]) != spec.num_speculative_tokens:
        raise InputError(
            f"{_name(row)} drafted {found[2]} tokens a step, the plan drafts {spec.num_speculative_tokens}; "
            "set speculative.num_speculative_tokens"
        )
    return []


def measured_rates(row: Row, num_speculative_tokens: int) -> tuple[float, ...]:
    """Acceptance by position that the row's notes hold; of a length alone, the constant acceptance that yields it. Empty without either."""
    notes = row.get("notes") or ""
    if listed := RATES.search(notes):
        rates = [min(1.0, float(text)) for text in listed[1].rstrip(", ").split(", ")]
        return tuple(min(rates[: i + 1]) for i in range(len(rates)))
    if stated := LENGTH.search(notes):
        return tuple(round(rate, 6) for rate in rates_for_length(float(stated[1]), num_speculative_tokens))
    return ()


def _name(row: Row) -> str:
    return f"row {str(row.get('id') or 'without id')[:80]!r}"
