"""One example run and compared, who is at fault, and where accuracy is lost."""
