"""What came out of a cell, and every sentence that is made of it."""
