"""What is in the wheel and the sdist, and what they say of themselves."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

from django_webhook_idempotency import __version__

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "django_webhook_idempotency"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as archive:
        yield archive


@pytest.fixture(scope="module")
def sdist_names(dist: Path) -> set[str]:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        return {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()}


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def committed(*paths: str) -> set[str]:
    """Return the files under `paths` as git has them, or as they lie there without git."""
    done = subprocess.run(["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True)
    if done.returncode == 0 and done.stdout:
        names = done.stdout.decode().split()
        return {name for name in names if (ROOT / name).exists()}
    files = (file for path in paths for file in (ROOT / path).rglob("*") if file.is_file())
    return {file.relative_to(ROOT).as_posix() for file in files if file.suffix != ".pyc"}


class TestWheel:
    def test_has_every_file_of_the_package(self, wheel):
        assert committed(PACKAGE) <= set(wheel.namelist())

    @pytest.mark.parametrize(
        "pattern",
        ["py.typed", "migrations/0001_*.py", "templates/**/*.html", "locale/**/*.mo"],
    )
    def test_has_what_is_not_python(self, wheel, pattern):
        expected = {file.relative_to(ROOT).as_posix() for file in (ROOT / PACKAGE).glob(pattern)}
        assert expected <= set(wheel.namelist())

    def test_has_nothing_but_the_package(self, wheel):
        folders = {PurePosixPath(name).parts[0] for name in wheel.namelist()}
        assert folders == {PACKAGE, f"{PACKAGE}-{__version__}.dist-info"}

    def test_has_no_litter(self, wheel):
        litter = re.compile(r"__pycache__|\.pyc$|\.sqlite3|\.orig$|~$")
        assert [name for name in wheel.namelist() if litter.search(name)] == []


class TestSdist:
    def test_has_the_package_and_its_tests(self, sdist_names):
        assert committed(PACKAGE, "tests", "docs", "example_project") <= sdist_names

    def test_has_what_builds_and_tests_it(self, sdist_names):
        needed = {"LICENSE", "Makefile", "README.md", "constraints.txt", "pyproject.toml"}
        assert needed <= sdist_names


class TestMetadata:
    def test_version_is_that_of_the_package(self, metadata):
        assert metadata["Version"] == __version__

    def test_needs_django_and_rest_framework_only(self, metadata):
        required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
        assert sorted(required) == ["django>=5.2", "djangorestframework>=3.16"]

    def test_extras(self, metadata):
        assert set(metadata.get_all("Provides-Extra")) == {
            *("api", "celery", "crypto", "github", "metrics", "redis", "sangho", "stripe"),
            "tasks",
        }

    def test_license_is_stated_and_enclosed(self, metadata, wheel):
        assert metadata["License-Expression"] == "MIT"
        assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())

    def test_classifiers_are_what_tox_tries(self, metadata):
        classifiers = metadata.get_all("Classifier")
        tox = (ROOT / "tox.ini").read_text()
        pythons = {f"{n[0]}.{n[1:]}" for n in re.search(r"py\{([\d,]+)\}", tox)[1].split(",")}
        djangos = set(re.findall(r"Django~=(\d+\.\d+)\.0", tox))
        assert {c.rpartition(" ")[2] for c in classifiers if "Python :: 3." in c} == pythons
        assert {c.rpartition(" ")[2] for c in classifiers if "Django :: " in c} == djangos
        assert "Typing :: Typed" in classifiers


PINS = [
    line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
]


def canonical(requirement: str) -> str:
    """Return the name of the package that a requirement or a pin is about."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


class TestConstraints:
    def test_are_plain_pins(self):
        pin = re.compile(r"^[\w.-]+==[\w.]+(; python_version < \"3\.12\")?$")
        assert [line for line in PINS if not pin.match(line)] == []

    def test_pin_every_dependency_of_the_groups(self):
        groups = PYPROJECT["dependency-groups"].values()
        wanted = {canonical(item) for group in groups for item in group if isinstance(item, str)}
        assert wanted <= {canonical(line) for line in PINS}
