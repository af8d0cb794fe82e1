"""The search for the best decision, and the reasons for it: `heddle.plan`."""
