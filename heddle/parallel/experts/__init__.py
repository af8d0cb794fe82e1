"""How a mixture of experts is spread over ranks."""
