"""The commands, one module each: ``arguments`` adds the options to a parser, ``run`` does the work and returns the
exit code.

A command raises UserError or OSError for what the user has to correct.
"""
