"""The search for the best decision. No PyTorch."""
