"""The plan beside what others charge: list prices at this plan's mix of tokens, and where buying breaks even."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.catalog.list_prices import ListPrice, find, hosts
from planner.scenario import CustomPrice, Scenario
from planner.units import DAY_S, HOUR_S, MTOK

HOURS_PER_DAY = DAY_S // HOUR_S


@dataclass(frozen=True, slots=True)
class Mix:
    """Mean tokens of one request."""

    input_tokens: float
    """Prompt tokens that no cache holds."""
    cached_tokens: float
    output_tokens: float

    @property
    def tokens(self) -> float:
        """All tokens of a request."""
        return self.input_tokens + self.cached_tokens + self.output_tokens

    def uncached(self) -> Mix:
        """The same request on a service without a prompt cache."""
        return Mix(self.input_tokens + self.cached_tokens, 0.0, self.output_tokens)

    def at_hit_rate(self, hit_rate: float) -> Mix:
        """The same request when this share of its prompt is cached."""
        prompt = self.input_tokens + self.cached_tokens
        return Mix(prompt * (1 - hit_rate), prompt * hit_rate, self.output_tokens)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One list price beside the plan."""

    label: str
    provider: str
    model: str
    input: float
    cached_input: float | None
    cache_write: float | None
    output: float
    batch_input: float | None
    batch_output: float | None
    blended: float | None
    """USD per million tokens at this plan's mix and hit rate."""
    ratio: float | None
    """The list price's blend over the plan's: above 1 the plan is cheaper."""
    usd_per_request: float
    date: str | None
    source: str
    pricing_url: str
    note: str


def listed(scenario: Scenario) -> tuple[ListPrice, ...]:
    """The prices a scenario asks to be compared with; the hosts of its model when it names none.

    Raises InputError for a label that neither the snapshot nor the library knows.
    """
    wanted = scenario.price.compare_to
    if not wanted:
        return hosts(scenario.model.name)
    return tuple(_custom(w) if isinstance(w, CustomPrice) else find(w) for w in wanted)


def _custom(price: CustomPrice) -> ListPrice:
    return ListPrice(
        model="",
        provider="",
        model_id=price.label,
        input=price.input,
        cached_input=price.cached_input,
        cache_write=price.cache_write,
        cache_write_1h=None,
        output=price.output,
        batch_input=None,
        batch_output=None,
        tiers="",
        outlier=False,
        date="",
        source="price.compare_to",
        pricing_url="",
        note="",
    )


def usd_per_request(price: ListPrice, mix: Mix) -> float:
    """What one request costs at a list price.

    Cached tokens pay the cached rate where there is one, else the input rate. Where writing to the cache is charged and
    the mix holds cached tokens, computed prompt tokens pay the write rate: what is read later was written once.
    """
    cached_rate = price.input if price.cached_input is None else price.cached_input
    writes = mix.cached_tokens > 0 and price.cached_input is not None and price.cache_write is not None
    input_rate = price.cache_write if writes and price.cache_write is not None else price.input
    return (mix.input_tokens * input_rate + mix.cached_tokens * cached_rate + mix.output_tokens * price.output) / MTOK


def batch_price(price: ListPrice) -> ListPrice | None:
    """The same host's price through its batch interface (no cache discount on top), or None where it sells none."""
    if price.batch_input is None or price.batch_output is None:
        return None
    return replace(price, input=price.batch_input, output=price.batch_output, cached_input=None, cache_write=None, note="batch interface")


def compare(prices: tuple[ListPrice, ...], mix: Mix, own_usd_per_mtok: float | None) -> tuple[Comparison, ...]:
    """Each price at the plan's mix, beside the plan's own blend (None while that is withheld)."""
    rows = []
    for p in prices:
        request_usd = usd_per_request(p, mix)
        blended = request_usd / mix.tokens * MTOK if mix.tokens else None
        ratio = blended / own_usd_per_mtok if blended is not None and own_usd_per_mtok else None
        rows.append(
            Comparison(
                label=p.model_id if not p.provider else p.label,
                provider=p.provider,
                model=p.model_id,
                input=p.input,
                cached_input=p.cached_input,
                cache_write=p.cache_write,
                output=p.output,
                batch_input=p.batch_input,
                batch_output=p.batch_output,
                blended=blended,
                ratio=ratio,
                usd_per_request=request_usd,
                date=p.date or None,
                source=p.source,
                pricing_url=p.pricing_url,
                note=p.note,
            )
        )
    return tuple(rows)


def requests_per_day_to_break_even(usd_per_hour: float, api_usd_per_request: float) -> float | None:
    """Requests a day above which a fleet at this hourly bill is cheaper than paying by the request; None if never."""
    return usd_per_hour * HOURS_PER_DAY / api_usd_per_request if api_usd_per_request > 0 else None


def break_even(prices: tuple[ListPrice, ...], mix: Mix, usd_per_hour: float) -> dict[str, dict[str, float | None]]:
    """Break-even of a fixed fleet against each price, without a prompt cache on either side and at the mix's hit rate."""
    return {
        (p.label if p.provider else p.model_id): {
            "uncached": requests_per_day_to_break_even(usd_per_hour, usd_per_request(p, mix.uncached())),
            "at_hit_rate": requests_per_day_to_break_even(usd_per_hour, usd_per_request(p, mix)),
        }
        for p in prices
    }
