"""Notice, tell and undo what a cell changes in its process.

So it does not decide on the next cell.

``fence`` stands around each cell. It reads the settings that ``process_settings`` (Python and the operating system),
``hooks`` (what Python calls of others) and ``numeric_settings`` (PyTorch, NumPy, the processor) list, looks for
functions that were replaced (``patched_functions``, ``judging``, ``bodies``) and for what a cell left running or open
(``leftovers``).
"""
