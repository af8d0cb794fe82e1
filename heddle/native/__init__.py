"""Machine code for this CPU through LLVM: the one place that compiles it, keeps it on disk, loads it and calls it."""
