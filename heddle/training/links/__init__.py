"""The links of a job's network while it trains: which one is waited for, and whether they are what the plan is for."""
