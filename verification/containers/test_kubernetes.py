"""The Kubernetes examples run: each container confined as its pod says, its secret a file."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from testkit.container_root import Confinement
from testkit.containers import Container, Host, confined
from testkit.servers.process import eventually, program

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.nightly

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = {"deployment": EXAMPLES / "kubernetes.yaml", "cronjob": EXAMPLES / "deploy/cronjob.yaml"}
MANIFESTS: dict[str, Any] = {
    name: yaml.safe_load(path.read_text("utf-8")) for name, path in FILES.items()
}
# What their images have: the program of the application, which the examples only name.
APP = {
    "app/app/scheduler.py": "import time\nprint('works', flush=True)\ntime.sleep(600)\n",
    "app/report.sh": """\
#!/bin/sh
set -e
touch /tmp/a
! touch /app/a || exit 1
! touch /run/secrets/leaselock/a || exit 1
! env | grep SECRET || exit 1
echo report
""",
}


def pod_of(name: str) -> Any:
    """The pod of a manifest."""
    spec = MANIFESTS[name]["spec"]
    spec = spec["jobTemplate"]["spec"] if name == "cronjob" else spec
    return spec["template"]["spec"]


class Cluster:
    """What starts pods: a host, and the secret that the examples name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = Host(["redis"])
        self.image = self.host.image(APP)
        self.secrets = {"leaselock": {"url": "redis://:SECRET@redis:6379/0\n"}}
        data = folder / "data"
        data.mkdir()
        os.chown(data, 999, 999)
        how = Confinement(user="999:999", folder="/data", volumes={"/data": str(data)})
        self.redis = self.host.start(self.image, ["redis-server", "--requirepass", "SECRET"], how)
        ping = ["redis-cli", "ping"]
        eventually(
            lambda: self.host.run(self.image, ping, how._replace(volumes={}, folder="/"))[0] == 0
        )

    def start(self, name: str) -> Container:
        """Start one pod of a manifest."""
        pod = pod_of(name)
        (container,) = pod["containers"]
        rights = pod["securityContext"] | container["securityContext"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        files, temporary = {}, []
        for mount in container["volumeMounts"]:
            volume = volumes.pop(mount["name"])
            if "emptyDir" in volume:
                temporary.append(mount["mountPath"])
                continue
            assert mount["readOnly"]
            secret = volume["secret"]
            for key, value in self.secrets[secret["secretName"]].items():
                file = self.folder / f"secret-{key}"
                file.write_text(value)
                # As the kubelet does for fsGroup.
                os.chown(file, 0, rights["fsGroup"])
                file.chmod(secret["defaultMode"])
                files[f"{mount['mountPath']}/{key}"] = str(file)
        assert not volumes
        how = Confinement(
            user=f"{rights['runAsUser']}:{rights['runAsGroup']}",
            groups=(rights["fsGroup"],),
            read_only=rights["readOnlyRootFilesystem"],
            drops_capabilities=rights["capabilities"]["drop"] == ["ALL"],
            no_new_privileges=not rights["allowPrivilegeEscalation"],
            env={each["name"]: each["value"] for each in container["env"]},
            temporary=tuple(temporary),
            files=files,
        )
        return self.host.start(self.image, [*container["command"], *container.get("args", [])], how)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.host.close()


def test_the_deployment_works_in_one_of_its_replicas(cluster: Cluster) -> None:
    replicas = [
        cluster.start("deployment") for _ in range(MANIFESTS["deployment"]["spec"]["replicas"])
    ]

    def working() -> list[Container]:
        return [each for each in replicas if "works" in each.output()]

    eventually(working)
    assert all(confined(each, 10001) for each in replicas)
    (leader,) = working()
    assert leader.stop() == 143
    eventually(lambda: len(working()) == 2)
    assert [each.stop() for each in replicas] == [143] * 3


def test_the_job_reports_once_in_its_period(cluster: Cluster) -> None:
    runs = [cluster.start("cronjob") for _ in range(2)]
    assert [each.process.wait(120) for each in runs] == [0, 0], [each.output() for each in runs]
    assert "".join(each.output() for each in runs).split().count("report") == 1


@pytest.mark.parametrize("name", FILES)
def test_the_pod_meets_the_restricted_standard(name: str) -> None:
    """The profile "restricted" of the Pod Security Standards, and what CIS 5.1.6 and 5.4.1 want."""
    pod = pod_of(name)
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    assert pod["automountServiceAccountToken"] is False
    rights = pod["securityContext"]
    assert (rights["runAsNonRoot"], rights["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert min(rights[key] for key in ("runAsUser", "runAsGroup", "fsGroup")) > 0
    assert all(volume.keys() <= {"name", "secret", "emptyDir"} for volume in pod["volumes"])
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        for variable in container["env"]:
            assert variable.keys() == {"name", "value"}, "a secret is a file"


@pytest.mark.parametrize("name", FILES)
def test_kubectl_knows_every_field(name: str, tmp_path: Path) -> None:
    assert unknown_fields(FILES[name].read_text("utf-8"), tmp_path) == set()


def test_a_field_that_does_not_exist_is_seen(tmp_path: Path) -> None:
    text = FILES["cronjob"].read_text("utf-8")
    wrong = text.replace("readOnlyRootFilesystem", "readOnlyRoot")
    assert {path[-2] for path in unknown_fields(wrong, tmp_path)} == {"readOnlyRoot"}


def unknown_fields(text: str, folder: Path) -> set[tuple[str, ...]]:
    """The fields of a manifest that kubectl loses when it reads that into its types, to change the
    image, and writes it again. No cluster is asked.
    """
    (image,) = re.findall("image: (.+)", text)
    file, other = folder / "manifest.yaml", f"{image}-other"
    file.write_text(text)
    command = [program("kubectl"), *"set image --local -o json -f".split(), str(file), f"*={other}"]
    written = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return fields(yaml.safe_load(text.replace(image, other))) - fields(written)


def fields(value: object) -> set[tuple[str, ...]]:
    """The paths of all fields, each with its value at its end."""
    if isinstance(value, dict) and value:
        parts = [(str(key), each) for key, each in value.items()]
    elif isinstance(value, list):
        parts = [(str(number), each) for number, each in enumerate(value)]
    else:
        return {(str(value),)}
    return {(key, *path) for key, each in parts for path in fields(each)}
