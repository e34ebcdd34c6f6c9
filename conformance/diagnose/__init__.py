"""Who is at fault, where, and the smallest example of it. Nothing here changes a verdict."""
