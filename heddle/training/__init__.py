"""Training: the loop, its data, its optimizer, what it writes and how it is taken up again."""
