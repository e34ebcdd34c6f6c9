"""The commands, one module each: ``arguments`` adds what it takes, ``run`` does it and returns the exit code.

A command raises UserError or OSError for what the user has to correct.
"""
