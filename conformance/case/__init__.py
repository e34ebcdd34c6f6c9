"""Case files, the cells that are planned from them, and the inputs that are drawn: all that is asked."""
