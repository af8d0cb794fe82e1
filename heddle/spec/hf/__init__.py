"""The families of Hugging Face: what their configurations say, and how that is written in [model]."""
