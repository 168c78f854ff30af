"""A Chromium for the tests of the interactive page."""

import pytest

from tests.helpers import browser


@pytest.fixture(scope="module")
def chromium():
    with browser.launched(browser.skip_without_browser()) as started:
        yield started
