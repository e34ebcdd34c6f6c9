"""Mutants: exported models with one small defect each, which tell whether a case would notice."""
