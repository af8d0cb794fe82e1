"""Pages that live: plans that follow one's choices, and runs that one watches."""
