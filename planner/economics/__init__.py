"""What to buy and whether to: a week of demand, break-even, what moves the decision, seats to sell, claims to check.

One noun a module; most are arithmetic over figures of a `Plan`, `sensitivity` and `claim` ask the planner again.
"""
