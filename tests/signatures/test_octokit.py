"""GitHub's own package signs, and every example payload it publishes verifies byte for byte."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from django_webhook_idempotency.enums import RejectReason
from django_webhook_idempotency.providers.github import GitHub
from django_webhook_idempotency.signatures import Secret

from .factories import received

pytestmark = [pytest.mark.service("node"), pytest.mark.service("npm")]

SECRET = "It's a Secret to Everybody"
PACKAGES = ["@octokit/webhooks-methods@6.0.0", "@octokit/webhooks-examples@7.6.1"]
SCRIPT = Path(__file__).parent / "octokit.mjs"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the packages by npm into a directory of this run."""
    directory = tmp_path_factory.mktemp("octokit")
    (directory / "package.json").write_text('{"private": true}')
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline", "--loglevel=error"]
    subprocess.run(["npm", "install", *quiet, *PACKAGES], cwd=directory, check=True, timeout=300)
    return directory


@pytest.fixture(scope="module")
def octokit(installed):
    """Give what runs a command of the script: JSON lines in, JSON lines out."""

    def run(command, lines=()):
        process = subprocess.run(
            ["node", str(SCRIPT), command, str(installed), SECRET],
            input="".join(json.dumps(line) + "\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert process.returncode == 0, process.stderr
        return [json.loads(line) for line in process.stdout.splitlines()]

    return run


@pytest.fixture(scope="module")
def signed(octokit):
    """Give every example payload as `(name, body, signature)`, signed by GitHub's package."""
    return [
        (line["name"], base64.b64decode(line["body"]), line["signature"])
        for line in octokit("sign")
    ]


def reason(body, signature):
    message = received({"X-Hub-Signature-256": signature}, body)
    return GitHub.scheme.verify(message, [Secret.parse(SECRET)], now=0, tolerance=None).reason


def test_every_example_is_there(installed, signed) -> None:
    published = [
        example
        for index in installed.glob("node_modules/@octokit/webhooks-examples/*/index.json")
        for event in json.loads(index.read_bytes())
        for example in event["examples"]
    ]
    assert len(signed) == len(published) > 300
    payloads = [json.loads(body) for _, body, _ in signed]
    assert sorted(payloads, key=repr) == sorted(published, key=repr)


def test_we_accept_every_example_that_octokit_signed(signed) -> None:
    assert [name for name, body, signature in signed if reason(body, signature)] == []


def test_a_body_written_anew_is_refused(signed) -> None:
    """WB-053: equal JSON is not equal bytes."""
    for _, body, signature in signed:
        anew = json.dumps(json.loads(body)).encode()
        assert anew != body
        assert reason(anew, signature) is RejectReason.MISMATCH


def test_octokit_accepts_every_example_that_we_signed(octokit, signed) -> None:
    ours = []
    for name, body, signature in signed:
        header = GitHub.scheme.sign(body, Secret.parse(SECRET))["X-Hub-Signature-256"]
        assert header == signature
        line = {"name": name, "body": base64.b64encode(body).decode(), "signature": header}
        ours.append(line)
    octokit("verify", ours)


def test_octokit_refuses_what_we_would_refuse(octokit) -> None:
    """The check above can fail."""
    line = {"name": "forged", "body": base64.b64encode(b"{}").decode(), "signature": "sha256=00"}
    with pytest.raises(AssertionError, match="not accepted: forged"):
        octokit("verify", [line])
