"""The results of a cell, and every sentence that is made of them."""
