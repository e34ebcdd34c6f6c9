"""Commands that go beyond a run, without their words. Nothing outside this room and ``front`` knows of it."""
