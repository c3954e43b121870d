"""The files around the code say what is so: compose, images, dependencies, commands, settings."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadtests.configurations import INSTRUMENTATION

ROOT = Path(__file__).parents[1]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def services() -> dict[str, dict[str, Any]]:
    composed: dict[str, dict[str, Any]] = yaml.safe_load(read("docker-compose.yml"))["services"]
    return composed


def is_one_shot(name: str) -> bool:
    """It ends by itself, and the others wait for it to end well."""
    waited_for = [one.get("depends_on", {}).get(name, {}).get("condition") for one in services().values()]
    return services()[name].get("restart") == "no" and "service_completed_successfully" in waited_for


def test_every_service_has_a_health_check_or_ends_by_itself() -> None:
    assert [name for name, one in services().items() if "healthcheck" not in one and not is_one_shot(name)] == []


def test_the_services_are_the_ones_the_readme_names() -> None:
    assert {name: one.get("profiles", []) for name, one in services().items()} == {
        "db": [],
        "redis": [],
        "migrate": [],
        "web": [],
        "worker": [],
        "importer": [],
        "messenger": [],
        "engine-cpu": [],
        "engine-gpu": ["accelerator"],
    }


def compose_check() -> list[str] | None:
    """Compose itself where the client has it, else the schema that the Compose project publishes."""
    if shutil.which("docker") and subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ["docker", "compose", "--profile", "accelerator", "config", "--quiet"]
    if find_spec("check_jsonschema"):
        return [
            sys.executable,
            "-m",
            "check_jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            "docker-compose.yml",
        ]
    return None


def test_the_compose_file_is_valid() -> None:
    command = compose_check()
    if command is None:
        pytest.skip("neither docker compose nor check-jsonschema is installed")
    secrets = {"POSTGRES_PASSWORD": "x", "DRAFTPROOF_SECRET_KEY": "x", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    ran = subprocess.run(command, cwd=ROOT, env=secrets, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def stages() -> dict[str, str]:
    """Name → instructions of each image target."""
    parts = re.split(r"^FROM \S+ AS (\S+)$", read("Dockerfile"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_image_that_compose_builds_is_a_target_and_runs_as_nobody_special() -> None:
    wanted = {one["build"]["target"] for one in services().values() if "build" in one}
    assert wanted == set(stages())
    assert {
        name: re.findall(r"^USER (\S+)$", text, re.MULTILINE)[-1] for name, text in stages().items()
    } == dict.fromkeys(stages(), "draftproof")


def test_what_the_images_copy_is_there_and_reaches_the_builder() -> None:
    copied = [
        name for line in re.findall(r"^COPY (.+) \S+$", read("Dockerfile"), re.MULTILINE) for name in line.split()
    ]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    let_through = {line[1:] for line in read(".dockerignore").splitlines() if line.startswith("!")}
    assert {name.split("/")[0] for name in copied} == let_through


def declared() -> set[str]:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    extras = [one for group in project["optional-dependencies"].values() for one in group]
    return {re.split(r"[\[<>=!~; ]", one)[0] for one in [*project["dependencies"], *extras]}


def test_every_dependency_has_its_reason_and_licence() -> None:
    rows = re.findall(r"^\| ([\w.-]+) \| (.+) \| (.+) \|$", read("docs/dependencies.md"), re.MULTILINE)
    reasons = {name: reason for name, reason, _ in rows if name != "package"}
    assert set(reasons) == declared()
    assert all(len(reason) > 8 for reason in reasons.values())


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", read("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", ".ci/run"])
def test_every_make_command_that_is_named_exists(name: str) -> None:
    commands = set(re.findall(r"\bmake (?:--silent )?([a-z][a-z-]+)(?=[`\s)\n])", read(name)))
    assert commands - targets() - {"and"} == set()


def test_the_readme_says_how_to_test() -> None:
    assert re.search(r"^make test\b", read("README.md"), re.MULTILINE)


def test_the_readme_names_every_setting_and_compose_sets_only_those() -> None:
    read_by_settings = set(re.findall(r'env\.\w+\(\s*"([A-Z_]+)"', read("config/settings.py")))
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", read("README.md"), re.MULTILINE))
    assert documented == read_by_settings
    assert set(services()["web"]["environment"]) <= read_by_settings


def test_the_engine_page_lists_what_the_digest_leaves_out() -> None:
    section = read("docs/engine.md").split("## What the digest leaves out")[1].split("## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `--")]
    assert {name for row in rows for name in re.findall(r"`(--[\w-]+)`", row)} == set(INSTRUMENTATION)


def own_files() -> Iterator[Path]:
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    yield from (ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file())


MACHINE_PATH = re.compile(r"""(?:^|[\s"'`=(:])/(?:work|root|tmp/w)/""", re.MULTILINE)
HOST = re.compile(r"https?://(?:[^/@\s\"'`]*@)?([A-Za-z0-9.-]+)")
# A host of the outside world is named where it is a standard's name for itself, or in its own example, nowhere else.
OUTSIDE = {"www.w3.org", "in-toto.io", "example.com"}


def is_ours(host: str) -> bool:
    return "." not in host or host.endswith(".example") or host.startswith("127.0.0.1") or host in OUTSIDE


def texts() -> Iterator[tuple[str, str]]:
    for path in own_files():
        with suppress(UnicodeDecodeError):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def test_no_file_names_a_path_of_some_machine_or_a_host_outside() -> None:
    found = []
    for name, text in texts():
        found += [(name, match.group(0).strip()) for match in MACHINE_PATH.finditer(text)]
        found += [(name, host) for host in HOST.findall(text) if not is_ours(host)]
    assert found == []


def test_every_link_between_documents_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    broken = [
        (page.name, target)
        for page in pages
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []
