"""Profiles: the short one is for every run and always tries the same examples; the long one draws new ones each time.

Long form: pytest tests/fuzz --hypothesis-profile=long
"""

from __future__ import annotations

from hypothesis import settings

from tests.fuzz.trying import USUAL_EXAMPLES

# A test's own count is for the short form; `trying.tries` scales it by the profile's.
settings.register_profile("long", max_examples=50 * USUAL_EXAMPLES, print_blob=True)
