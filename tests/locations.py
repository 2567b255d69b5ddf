"""Where the things are that tests of several folders use."""

from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
CONFIGS = REPOSITORY / "configs"
