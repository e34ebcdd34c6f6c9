"""What a cell compares: PyTorch, exported and converted models, and what is kept of them."""
