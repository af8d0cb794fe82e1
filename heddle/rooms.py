"""The map of the house: its rooms in the order of their imports, and what is in each.

A room may import those above it, never one below. The README, the manual's page on the architecture and the tests read
this table; nothing else states the order.
"""

ROOMS = {
    "schedule": "the order of work of each pipeline rank, as data, and the check that it cannot deadlock",
    "spec": "what you have and what was decided: model, cluster, job, plan; presets; Hugging Face configs",
    "graph": "weighted graphs, their down-sets and linear extensions; time limits of searches",
    "cost": "what each piece of work costs: seconds and bytes, for many plans at once",
    "trace": "what happened when, or would happen: on the terminal, as SVG or PNG, or for Perfetto",
    "simulating": "a schedule on a clock: exactly for one plan, in closed form for many",
    "calibrate": "a cluster's constants fitted to measured runs, and predictions compared with them",
    "planning": "the search for the best plan and its reasons; Piper; placements; layouts over unequal links",
    "trainers": "plans for other trainers: their arguments and files, written from a job and read as one",
    "data": "text to tokens to samples",
    "runs": "a run's folder, its metrics, and files that survive a power cut",
    "reporting": "the HTML page about a plan or a run",
    "explore": "pages that live: plans that follow one's choices, and runs that one watches",
    "native": "machine code through LLVM: compiled, kept in a private cache, loaded and called",
    "lanes": "straight-line code packed into vector lanes: an exact program, a learned policy, and LLVM to compare",
    "models": "the transformer, written once, for one device; modules that users bring",
    "parallel": "how that model is spread over devices, applied from outside: tensor, pipeline, replicas, memory",
    "runtime": "processes and devices: launching, joining, recording, stopping",
    "checkpoint": "what a run can resume from, under any plan; exchange with Hugging Face",
    "training": "the loop, a step, and the tools around it: dry run, prove, profile",
    "capturing": "any module captured as a graph of operators, split into stages and run over processes",
    "tiles": "a captured network run on CPU cores without barriers: kernels as LLVM IR, tiles, and their workers",
    "api": "what users call from Python: a function for each command",
    "cli": "one file per command",
}

# Everything above this room works on a machine that has no PyTorch; in it, only the training of the policy needs it.
FIRST_WITH_TORCH = "lanes"
