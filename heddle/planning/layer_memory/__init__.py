"""What each layer does to need less memory, chosen for every stage under a budget: ZeRO, recomputation, offload."""
