"""Case files drafted from modules: what forward takes is found by trying, and what hangs on a guess is said."""
