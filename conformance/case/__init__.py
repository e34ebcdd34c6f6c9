"""What is asked: case files, the cells that are planned from them, and the inputs that are drawn."""
