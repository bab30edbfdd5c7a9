"""A cluster's daemons and jobs take the whole machine."""

from __future__ import annotations

import os

import pytest


def pytest_runtest_setup() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("needs the machine for itself: make test-cluster")
