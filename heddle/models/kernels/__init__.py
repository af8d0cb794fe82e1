"""Kernels in C, and packed as LLVM IR."""
