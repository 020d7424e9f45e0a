from __future__ import annotations

from pathlib import Path

import pytest

from app.report.campaign_view import CampaignView, read_campaign
from tests.app.report.made_campaign import draw_cells, make_campaign, make_plan


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole campaign of 4 blocks; tests that change it copy it first."""
    plan = make_plan()
    return make_campaign(tmp_path_factory.mktemp("runs") / "20261102-090501", plan, draw_cells(plan))


@pytest.fixture(scope="session")
def view(folder: Path) -> CampaignView:
    return read_campaign(folder)
