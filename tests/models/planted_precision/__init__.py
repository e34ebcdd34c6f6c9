"""Plants defects in converted models, in what converts them and in what runs them, and checks who gets the blame."""

import pytest

pytest.register_assert_rewrite("tests.models.planted_precision.support")
