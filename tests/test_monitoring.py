"""The dashboard and the alert rules: they parse, and name metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from testkit.servers.process import program

from leaselock._web.metrics import BY_FAMILY, StoreMetrics
from leaselock.contrib.prometheus import metrics
from leaselock.live import View

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[1] / "examples" / "monitoring"
NAME = re.compile(r"\bleaselock_\w+")
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",)}


def alerts() -> list[dict[str, Any]]:
    """All alert rules."""
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> Any:
    """The dashboard."""
    return json.loads((FOLDER / "grafana-dashboard.json").read_text("utf-8"))


def panels() -> list[dict[str, Any]]:
    """Its panels, but for headings."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """The queries of the dashboard, with values for its variables."""
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [re.sub(r"\$(job|lock)", ".*", q).replace("$__rate_interval", "5m") for q in found]


def exported() -> Iterator[str]:
    """The names of all series that the library exports."""
    registry = CollectorRegistry()
    metrics(registry)
    store = StoreMetrics(View)
    assert set(BY_FAMILY) < {metric.name for metric in store.collect()}
    for metric in (*registry.collect(), *store.collect()):
        for suffix in SUFFIXES.get(metric.type, ("",)):
            yield metric.name + suffix


def test_every_metric_that_is_named_exists() -> None:
    known = set(exported())
    texts = [rule["expr"] for rule in alerts()] + queries()
    texts += [variable["query"]["query"] for variable in variables()]
    named = {name for text in texts for name in NAME.findall(text)}
    assert named - known == set()
    # And each of them is shown; of a histogram one of its series.
    assert {base(name) for name in known} == {base(name) for name in named}


def base(name: str) -> str:
    """The name of the metric that a series belongs to."""
    return re.sub(r"_(bucket|count|sum|total)$", "", name)


def variables() -> list[Any]:
    """The variables of the dashboard that are queries."""
    return [each for each in dashboard()["templating"]["list"] if each["type"] == "query"]


def test_alerts_say_what_is_wrong() -> None:
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names))


def test_panels_are_complete_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids))
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in panels():
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]


def promtool(*words: str, folder: Path = FOLDER) -> None:
    """Run promtool; fail with what it says."""
    ran = subprocess.run(
        [program("promtool"), *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.heavy
def test_prometheus_accepts_the_rules_and_its_configuration() -> None:
    promtool("check", "rules", "alerts.yaml")
    promtool("check", "config", "prometheus.yaml")


@pytest.mark.heavy
def test_each_alert_fires_when_it_should() -> None:
    tests = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text("utf-8"))["tests"]
    fired = {
        each["alertname"]
        for test in tests
        for each in test["alert_rule_test"]
        if each["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in alerts()}
    promtool("test", "rules", "alerts_test.yaml")


@pytest.mark.heavy
def test_prometheus_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"query:{i}", "expr": query} for i, query in enumerate(queries())]
    text = yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    (tmp_path / "rules.yaml").write_text(text, "utf-8")
    promtool("check", "rules", "rules.yaml", folder=tmp_path)
