"""What the repository keeps of results: small tables of finished sweeps and the papers' claims, and the pages made from them."""
