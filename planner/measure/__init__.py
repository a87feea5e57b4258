"""What a server really does, beside what the plan says.

- `experiment.measure(endpoint, options)` streams requests to a live endpoint and times their tokens; `summary.document` is its JSON.
- `importers.read(path)` turns results of other benchmark tools into measured rows; `metrics_text.facts(text)` reads /metrics pages.
- `compare.compare(rows, scenario)` lays rows over the plan's bands, names the part that is off and offers one calibration factor;
  `check.check(plan, rows)` is the acceptance test.
"""
