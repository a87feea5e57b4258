"""Scenario ↔ link. A query key is the scenario's dotted path; a value that cannot be used costs one note, never the link.

`decode` is tolerant because links come from people and from years ago; files go through `scenario.parse`, which is strict.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode

from pydantic import ValidationError

from planner import migrate, presets
from planner.links.fields import LENGTH_PARTS, LENGTHS, Leaf, Texts, get, leaves, read, split_length, write
from planner.problems import InputError
from planner.scenario import SCHEMA_VERSION, Lengths, Scenario
from planner.scenario.base import LARGEST
from planner.scenario.deployment import DEFAULT_MODEL
from planner.scenario.errors import in_words, nearest, shown, telling

MAX_LINK_CHARACTERS = 32_000
"""Longer links are refused whole: browsers and proxies cut them."""
MAX_SETTINGS = 400
MAX_NOTES = 8
"""Notes beyond this are counted, not listed."""
THEN = "then.floor_usd_per_mtok_output"
"""Query key of a figure that a shared link carries along; no setting."""
UNUSED = "This link is not used"
"""How the only note on a link begins of which nothing could be read."""
SAME_PRICE = 0.005
"""Relative difference below which a price counts as the same."""

Query = dict[str, Texts]
Notes = tuple[str, ...]


def encode(scenario: Scenario) -> Query:
    """Every field that differs from the schema's default, under its dotted path, in the scenario's order.

    An optional section is switched on by itself only when all its fields are at their defaults. A closed loop leaves
    `workload.request_rate` out; clients that also wait for a rate state it.
    """
    values = ((leaf, get(scenario, leaf)) for leaf in leaves().values())
    query = {leaf.path: write(leaf, value) for leaf, value in values if value != leaf.default}
    for switch in [path for path in query if leaves()[path].kind == "switch"]:
        if any(path.startswith(f"{switch}.") for path in query):
            del query[switch]
    if scenario.workload.max_concurrency is not None:
        rate = leaves()["workload.request_rate"]
        query |= {rate.path: write(rate, scenario.workload.request_rate)}
        if scenario.workload.request_rate is None:
            del query[rate.path]
    return query


def share(scenario: Scenario, price_date: str | None = None, floor_usd_per_mtok: float | None = None) -> Query:
    """What "Copy link" writes: `encode` plus the schema version, the date of the price data it was made with, and the floor price of
    output tokens as it was then, by which a later reader sees whether anything behind the link has moved."""
    query: Query = {"schema_version": str(SCHEMA_VERSION), **encode(scenario)}
    query |= {"price.as_of": price_date} if price_date else {}
    return query | ({THEN: f"{floor_usd_per_mtok:.5g}"} if floor_usd_per_mtok else {})


def versioned(query: Query) -> Query:
    """A query that states its schema version, where it is not the first one: links without a version are of the first for ever."""
    return {"schema_version": str(SCHEMA_VERSION), **query} if SCHEMA_VERSION != migrate.UNSTATED_VERSION else query


def then_usd_per_mtok(texts: Iterable[str]) -> float | None:
    """The floor price that a link carries under `THEN`; None where it is missing or no price."""
    try:
        value = float([*texts][-1])
    except (IndexError, ValueError):
        return None
    return value if 0 < value < LARGEST else None


def moved(scenario: Scenario, then: float | None, now: float | None, newest_prices: str | None) -> str:
    """What has changed behind a link since it was made, in one sentence; empty where nothing has.

    `then` and `now` are floor prices of a million output tokens, USD; `newest_prices` the date of today's price data.
    """
    made = scenario.price.as_of
    if then and now is None:
        return f"When this link was made a million output tokens cost ${then:.3g} at a full batch; now this plan has no price."
    if then and now and abs(now / then - 1) > SAME_PRICE:
        prices = f"; prices are of {newest_prices} now, of {made} then" if made and newest_prices and made != newest_prices else ""
        return (
            f"When this link was made a million output tokens cost ${then:.3g} at a full batch, now ${now:.3g}: "
            f"prices, models or constants have changed since{prices}."
        )
    if made and newest_prices and made != newest_prices:
        return f"This link was made with prices of {made}; those of {newest_prices} are used now."
    return ""


def url(base: str, query: Mapping[str, Texts]) -> str:
    """An address that opens the query on the page at `base`."""
    return f"{base.partition('?')[0]}?{urlencode(query, doseq=True)}"


def decode(link: str | Mapping[str, str | Iterable[str]]) -> tuple[Scenario, Notes]:
    """A link, its query string, or the query as a mapping → the scenario and one sentence per setting that could not be used.

    Never raises: what cannot be used falls back to the preset that the link names, or to the default.
    """
    try:
        query = _parse(link)
        version = migrate.known_version(query.pop("schema_version", [str(migrate.UNSTATED_VERSION)])[-1])
        query.pop(THEN, None)
    except InputError as error:
        return Scenario(), (f"{UNUSED}: {error}",)
    base, notes = _preset(query.pop("preset", []))
    values, changes = migrate.paths({tuple(key.split(".")): texts for key, texts in query.items()}, version)
    accepted, refused = _read_all({".".join(path): value for path, value in values.items()}, base)
    if accepted.get("workload.max_concurrency") is not None:
        accepted.setdefault("workload.request_rate", None)  # clients and no rate is a closed loop
    if accepted.get("model.hf_config") is not None and base.model.hf_config is None:
        accepted.setdefault("model.name", DEFAULT_MODEL)  # the preset's name is another model's
    scenario, clashes = _assemble(_with_lengths(accepted, base), base)
    return scenario, _few((*notes, *changes, *refused, *clashes))


def _parse(link: str | Mapping[str, str | Iterable[str]]) -> dict[str, list[str]]:
    if isinstance(link, str):
        if len(link) > MAX_LINK_CHARACTERS:
            raise InputError(f"it has {len(link):,} characters, at most {MAX_LINK_CHARACTERS:,} are read")
        text = link.partition("#")[0]
        try:
            return parse_qs(text.partition("?")[2] if "?" in text else text, keep_blank_values=True, max_num_fields=MAX_SETTINGS)
        except ValueError as error:
            raise InputError(f"it has more than {MAX_SETTINGS} settings") from error
    if not isinstance(link, Mapping):
        raise InputError(f"it is no text: {shown(link)}")
    link = {key: value if isinstance(value, (str, list, tuple)) else str(value) for key, value in link.items()}
    query = {str(key): [value] if isinstance(value, str) else [str(v) for v in value] or [""] for key, value in link.items()}
    if sum(len(text) + len(key) for key, texts in query.items() for text in texts) > MAX_LINK_CHARACTERS or len(query) > MAX_SETTINGS:
        raise InputError(f"it has more than {MAX_LINK_CHARACTERS:,} characters or {MAX_SETTINGS} settings")
    return query


def _preset(names: list[str]) -> tuple[Scenario, Notes]:
    if not names:
        return Scenario(), ()
    try:
        return presets.load(names[-1]), ()
    except InputError as error:
        return Scenario(), (f"{str(error).rstrip('?')}; the defaults are used instead",)


def _read_all(query: dict[str, Any], base: Scenario) -> tuple[dict[str, Any], list[str]]:
    """Each setting on its own: the usable ones by path, and a note for each other one."""
    known, accepted, notes = leaves(), {}, []
    for path, texts in query.items():
        leaf = known.get(path)
        if leaf is None:
            near = _nearest_leaf(path[:120])
            notes.append(f"{shown(path)} is not a setting and is ignored" + (f"; did you mean {near}?" if near else ""))
            continue
        try:
            accepted[path] = read(leaf, texts if isinstance(texts, list) else [_old_default(texts)])
        except ValueError as error:
            notes.append(_note(path, " and ".join(texts), _reason(error, texts[-1]), _kept(leaf, base)))
    own_model = accepted.get("model.hf_config", base.model.hf_config) is not None
    for path, value in list(accepted.items()):
        problem = _not_in_catalogue(path, value, own_model)
        if problem:
            del accepted[path]
            notes.append(_note(path, str(value), problem, _kept(known[path], base)))
    return accepted, notes


def _nearest_leaf(path: str) -> str | None:
    """A setting of the same last name, of the section that was named, or of nearly the same path."""
    last = path.rpartition(".")[2]
    akin = [p for p in leaves() if p.rpartition(".")[2] == last or p.startswith(path + ".")]
    near = akin[0] if akin else nearest(path, Scenario)
    return near if near in leaves() else None


def _old_default(value: Any) -> str:
    """A default of an older version as link text."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _note(path: str, value: str, reason: str, kept: str) -> str:
    return f"{path} = {shown(value)} cannot be used: {reason}; {kept}"


def _kept(leaf: Leaf, base: Scenario) -> str:
    value = get(base, leaf)
    text = write(leaf, value) if leaf.kind != "config" else "none"
    text = " and ".join(text) if isinstance(text, list) else text
    return f"{text if text and value is not None else 'no value'} is used instead"


def _reason(error: ValueError, text: str) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    errors = error.errors(include_url=False)
    first = max(errors, key=telling)
    message = in_words(first["msg"])
    options = first.get("ctx", {}).get("expected", "").replace(" or ", ", ").replace("'", "").split(", ")
    near = difflib.get_close_matches(text.lower(), options, n=1) if text and first["type"] == "literal_error" else []
    return message + (f", did you mean {near[0]}?" if near else "")


def _not_in_catalogue(path: str, value: Any, own_model: bool) -> str:
    """Why a slug cannot be used, naming the nearest; empty when it can. With a config of one's own the model's name is a label."""
    from planner.catalog.gpus import gpus
    from planner.catalog.models import models

    last = path.rpartition(".")[2]
    entries: Mapping[str, Any]
    if last == "gpu":
        entries = gpus()
    elif last == "draft_model" or (path == "model.name" and not own_model):
        entries = models()
    else:
        return ""
    if value is None or value in entries:
        return ""
    near = difflib.get_close_matches(str(value).lower(), list(entries), n=1, cutoff=0.3)
    return "the catalogue does not hold it" + (f", the nearest is {near[0]}" if near else "")


def _assemble(accepted: dict[str, Any], base: Scenario) -> tuple[Scenario, list[str]]:
    """The usable settings over the base. Settings that clash with each other are dropped with a note."""
    data, notes = base.model_dump(), []
    for section in dict.fromkeys(path.partition(".")[0] for path in accepted):
        mine = {path: value for path, value in accepted.items() if path.partition(".")[0] == section}
        while True:
            try:
                data[section] = Scenario.model_validate({section: _overlay(data[section], mine)}).model_dump()[section]
                break
            except ValidationError as error:
                without = {p: {k: v for k, v in mine.items() if k != p} for p in reversed(mine)}
                culprits = [p for p, rest in without.items() if _valid(section, _overlay(data[section], rest))][:1] or list(mine)
                notes.append(f"{' and '.join(culprits[:3])} cannot be used here: {_reason(error, '')}; the value before is kept")
                mine = {path: value for path, value in mine.items() if path not in culprits}
    return Scenario.model_validate(data), notes


def _with_lengths(accepted: dict[str, Any], base: Scenario) -> dict[str, Any]:
    """The settings with each length's mean, cv and max joined into one value."""
    joined = {path: value for path, value in accepted.items() if path not in LENGTH_PARTS}
    for name in LENGTHS:
        path = f"workload.{name}"
        given = {part for part in ("", ".cv", ".max") if path + part in accepted}
        mean, cv, longest = (
            accepted.get(p, old)
            for p, old in zip((path, f"{path}.cv", f"{path}.max"), split_length(getattr(base.workload, name)), strict=True)
        )
        if given and isinstance(mean, dict | Lengths):
            joined[path] = mean
        elif given:
            joined[path] = {"kind": "lognormal", "mean": mean, "cv": cv, "max": longest} if float(cv or 0) else mean
    return joined


def _overlay(section: Any, settings: dict[str, Any]) -> Any:
    """A section's data with settings laid over it; an optional section is on when one of its settings is, unless switched off."""
    root: dict[str, Any] = {"": _copy(section)}
    for path, value in settings.items():
        parts = path.split(".")[1:]
        off = [p for p, v in settings.items() if v is None and leaves()[p].kind == "switch" and path.startswith(p + ".")]
        if off:
            continue
        at, key = root, ""
        for part in parts:
            at[key] = at[key] if isinstance(at[key], dict) else {}
            at, key = at[key], part
            at.setdefault(key, None)
        if leaves()[path].kind != "switch" or value is None:
            at[key] = value
        elif at[key] is None:
            at[key] = {}
    return root[""]


def _copy(data: Any) -> Any:
    return {k: _copy(v) for k, v in data.items()} if isinstance(data, dict) else data


def _valid(section: str, data: Any) -> bool:
    try:
        Scenario.model_validate({section: data})
    except ValidationError:
        return False
    return True


def _few(notes: tuple[str, ...]) -> Notes:
    more = len(notes) - MAX_NOTES + 1
    return notes if more <= 1 else (*notes[: MAX_NOTES - 1], f"{more} more settings of this link could not be used")
