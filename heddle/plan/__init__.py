"""The search for the best decision, and the reasons for it. The package can be called: `heddle.plan(job)` searches."""

from heddle.callable import make_callable

make_callable(__name__, "heddle.plan.search", "search")
