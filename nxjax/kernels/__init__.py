"""Device code: what runs on one core or tile, each kernel with its meaning, its constraints and its cost."""
