"""Sites that come and go: each trains by itself, and meets the others who are there after many steps."""
