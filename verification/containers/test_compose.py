"""`examples/deploy/compose.yaml` runs: its Redis and its two workers, each confined as it says."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from testkit.container_root import Confinement
from testkit.containers import Container, Host, confined
from testkit.servers.process import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nightly

FOLDER = Path(__file__).parents[2] / "examples" / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
SERVICES = COMPOSE["services"]
# The image of Redis: the numbers of the user that it names, and its working directory.
USERS = {"redis": "999:1000"}
REDIS_WORKS_IN = "/data"
# What this test carries out, or knows to be of no effect on one machine. It fails at anything else.
KNOWN = set(
    "image build command user read_only cap_drop security_opt volumes secrets healthcheck deploy "
    "environment tmpfs stop_grace_period restart depends_on".split()
)


class Project:
    """`docker compose` for this file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = Host(list(SERVICES))
        dockerfile = (FOLDER / "Dockerfile").read_text("utf-8")
        self.dockerfile = [
            line.partition(" ")[::2]
            for line in dockerfile.splitlines()
            if line and not line.startswith("#")
        ]
        says = dict(self.dockerfile)
        source, _ = says["COPY"].split()
        text = (FOLDER / source).read_text("utf-8")
        self.image = self.host.image({f"{says['WORKDIR'].lstrip('/')}/{source}": text})
        self.work = says["WORKDIR"]

    def confinement(self, name: str) -> Confinement:
        """What the file says of a service."""
        service = SERVICES[name]
        assert service.keys() <= KNOWN, service.keys() - KNOWN
        user = USERS.get(service["user"], service["user"])
        volumes = {}
        for volume in service.get("volumes", []):
            source, _, target = volume.partition(":")
            assert source in COMPOSE["volumes"]
            folder = self.folder / source
            folder.mkdir(exist_ok=True)
            # A new volume belongs to the user of the image's directory.
            os.chown(folder, *map(int, user.split(":")))
            volumes[target] = str(folder)
        files = {
            f"/run/secrets/{each}": str(self.folder / COMPOSE["secrets"][each]["file"])
            for each in service["secrets"]
        }
        return Confinement(
            user=user,
            read_only=service["read_only"],
            drops_capabilities=service["cap_drop"] == ["ALL"],
            no_new_privileges="no-new-privileges:true" in service["security_opt"],
            env=service.get("environment", {}),
            folder=self.work if "build" in service else REDIS_WORKS_IN,
            temporary=tuple(service.get("tmpfs", ())),
            files=files,
            volumes=volumes,
        )

    def up(self, name: str) -> Container:
        """Start one container of a service."""
        return self.host.start(self.image, SERVICES[name]["command"], self.confinement(name))

    def run(self, name: str, *command: str) -> tuple[int, str]:
        """Run a command as `docker compose run` does."""
        return self.host.run(self.image, command, self.confinement(name))

    def make_secrets(self) -> None:
        """Do what the head of the file says."""
        password = secrets.token_hex(24)
        folder = self.folder / "secrets"
        folder.mkdir(mode=0o700)
        lines = (FOLDER / "compose.yaml").read_text("utf-8").splitlines()
        words = [line.removeprefix("#").strip() for line in lines if line.startswith("#   ")]
        (url,) = (word.split('"')[1] for word in words if word.startswith("echo"))
        users = [word for word in words if word.startswith("user ")]
        for name, text in (("leaselock_url", f"{url}\n"), ("redis_users", "\n".join(users) + "\n")):
            file = folder / name
            file.write_text(text.replace("$PASSWORD", password))
            file.chmod(0o644)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    project.make_secrets()
    yield project
    project.host.close()


def test_one_of_two_workers_runs_and_the_other_takes_over(project: Project) -> None:
    redis = project.up("redis")
    assert confined(redis, 999)
    check = SERVICES["redis"]["healthcheck"]["test"]
    assert check[0] == "CMD"
    eventually(lambda: project.run("redis", *check[1:])[0] == 0)
    worker = SERVICES["worker"]
    assert worker["depends_on"].keys() == SERVICES.keys() - {"worker"}
    workers = [project.up("worker") for _ in range(worker["deploy"]["replicas"])]
    eventually(lambda: sum("works" in each.output() for each in workers) == 1)
    assert all(confined(each, 10001) for each in workers)
    eventually(lambda: len(waiters(project)) == 1)
    (leader,) = (each for each in workers if "works" in each.output())
    (other,) = (each for each in workers if each is not leader)
    assert leader.stop() == 0  # the worker ends by itself on SIGTERM
    eventually(lambda: "works" in other.output())
    assert other.stop() == 0
    # What a stop leaves is on the volume, and no secret is in the environment.
    assert (project.folder / "locks" / "appendonlydir").exists()
    code, env = project.run("worker", "env")
    assert (code, "redis://" in env) == (0, False)


def waiters(project: Project) -> list[object]:
    """The waiters for the lock of the workers, as a container of theirs sees them."""
    code, text = project.run("worker", "leaselock", "show", "worker", "--json")
    assert code == 0, text
    found: list[object] = json.loads(text)["lock"]["waiters"]
    return found


def test_a_worker_can_write_to_its_temporary_directory_alone(project: Project) -> None:
    script = "touch /tmp/a && ! touch /app/a && ! touch /a && ! touch /run/secrets/a && id -u"
    code, text = project.run("worker", "sh", "-c", script)
    assert (code, text.splitlines()[-1]) == (0, "10001"), text


def test_the_image_is_for_a_user_without_rights(project: Project) -> None:
    says = dict(project.dockerfile)
    user, _, group = says["USER"].partition(":")
    assert min(int(user), int(group)) > 0  # Kubernetes cannot compare a name with runAsNonRoot
    assert says["USER"] == SERVICES["worker"]["user"]
    # After the last file was copied, which so belongs to root.
    assert [word for word, _ in project.dockerfile].index("USER") > [
        word for word, _ in project.dockerfile
    ].index("COPY")
    command = json.loads(says["CMD"])
    words = SERVICES["worker"]["command"]
    assert [word for word in words if word not in ("--lease", "10s")] == command


def test_no_process_of_a_container_outlives_its_host() -> None:
    with Host() as host:
        how = Confinement(
            "999:999",
            drops_capabilities=True,
            no_new_privileges=True,
            temporary=("/tmp",),
            folder="/tmp",
        )
        container = host.start(host.image(), ["sleep", "600"], how)
        assert confined(container, 999)
        first = Path(f"/proc/{container.first}")
        assert first.exists()
    assert not first.exists()
