"""Does ``make test-slow`` look at more examples than ``make test``?"""

import re
from pathlib import Path

from hypothesis import settings

MAKEFILE = Path(__file__).parent.parent / "Makefile"


def test_the_profile_of_the_long_runs_is_registered_and_looks_further() -> None:
    (name,) = re.findall(r"HYPOTHESIS_PROFILE=([a-z]+)", MAKEFILE.read_text())
    assert settings.get_profile(name).max_examples == 300
    assert settings.get_profile("tessera").max_examples == 100
    assert settings.get_profile(name).deadline is None
