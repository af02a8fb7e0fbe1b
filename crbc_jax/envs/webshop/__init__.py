"""WebShop (arXiv 2207.01206) as a light text engine."""
