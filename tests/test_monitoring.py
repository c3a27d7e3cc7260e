"""The dashboard and the alert rules: they parse, and name metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry
from testkit.servers.process import eventually, free_port, program

from leaselock._cli.metrics_file import METRICS
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
    yield from METRICS


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
def test_a_live_prometheus_sees_a_job_that_hangs(tmp_path: Path) -> None:
    """The others skip their runs and exit 0, and no process waits: one alert fires."""
    url = f"sqlite:///{tmp_path}/locks.db"
    command = [sys.executable, "-m", "leaselock", "--url", url]
    rules = (FOLDER / "alerts.yaml").read_text("utf-8")
    assert rules.count("> 14400") == 2
    rules = re.sub(r"for: \d+m", "for: 0s", rules.replace("> 14400", "> 0.5"))
    (tmp_path / "alerts.yaml").write_text(rules, "utf-8")
    go = tmp_path / "go"
    hanging = [
        *command,
        "run",
        "import",
        "--",
        "sh",
        "-c",
        f"while [ ! -e {go} ]; do sleep 0.1; done",
    ]
    with ExitStack() as stack:
        job = stack.enter_context(started(hanging))
        page = stack.enter_context(started([*command, "--json", "web", "--port", "0"]))
        assert page.stdout is not None
        target = json.loads(page.stdout.readline())["url"].split("/")[2]
        configuration = yaml.safe_load((FOLDER / "prometheus.yaml").read_text("utf-8"))
        configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        configuration["scrape_configs"] = [
            {"job_name": "leaselock-store", "static_configs": [{"targets": [target]}]}
        ]
        (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(configuration), "utf-8")
        port = free_port()
        words = ["--config.file=prometheus.yaml", f"--web.listen-address=127.0.0.1:{port}"]
        server = [program("prometheus"), *words, f"--storage.tsdb.path={tmp_path}/data"]
        stack.enter_context(started(server, cwd=tmp_path))

        def firing() -> set[str]:
            try:
                reply = httpx.get(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=60)
            except httpx.HTTPError:
                return set()
            if reply.status_code != 200:
                return set()
            alerts = reply.json()["data"]["alerts"]
            return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

        skipped = subprocess.run(
            [*command, "run", "-n", "--skip-ok", "import", "true"], check=False
        )
        assert skipped.returncode == 0
        eventually(lambda: firing() == {"LockHeldUnwanted"})
        go.touch()
        assert job.wait(60) == 0
        eventually(lambda: firing() == set())


@contextmanager
def started(words: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process, which is ended."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, stdout=pipe, stderr=subprocess.DEVNULL, text=True, **options
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.mark.heavy
def test_prometheus_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"query:{i}", "expr": query} for i, query in enumerate(queries())]
    text = yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    (tmp_path / "rules.yaml").write_text(text, "utf-8")
    promtool("check", "rules", "rules.yaml", folder=tmp_path)
