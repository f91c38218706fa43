"""English, Spanish and French are complete, as the source has it today."""

from __future__ import annotations

import ast
import gettext
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import django_webhook_idempotency
from django_webhook_idempotency.enums import EventStatus, Outcome
from tests import services
from tests.admin.conftest import DELIVERIES, EVENTS, address
from tests.admin.sample import Sample

PACKAGE = Path(django_webhook_idempotency.__file__).parent
LANGUAGES = ["en", "es", "fr"]
KEYWORDS = ("msgctxt", "msgid_plural", "msgid", "msgstr")
Text = Callable[..., str]


def catalogue(language: str, folder: Path = PACKAGE) -> Path:
    """A language's .po file."""
    return folder / "locale" / language / "LC_MESSAGES" / "django.po"


def entries(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The comments and the strings of each entry, the header's left out."""
    for block in path.read_text("utf-8").split("\n\n"):
        comments, strings, keyword = "", dict[str, str](), ""
        for line in block.splitlines():
            if line.startswith("#"):
                comments += line
                continue
            if not line.startswith('"'):
                keyword, _, line = line.partition(" ")
            strings[keyword] = strings.get(keyword, "") + ast.literal_eval(line)
        if strings.get("msgid"):
            yield comments, strings


def messages(path: Path) -> set[tuple[str, str]]:
    """What there is to translate."""
    return {(one["msgid"], one.get("msgid_plural", "")) for _, one in entries(path)}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a catalogue made anew from the source."""
    problem = services.command_problem("xgettext")()
    if problem and services.required():
        pytest.fail(problem)
    if problem:
        pytest.skip(problem)
    copy = tmp_path_factory.mktemp("source") / PACKAGE.name
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("locale", "__pycache__"))
    (copy / "locale").mkdir()
    subprocess.run(
        [sys.executable, "-m", "django", "makemessages", "-l", "en", "-v", "0"],
        cwd=copy, check=True, env={"PATH": str(Path(shutil.which("xgettext") or "").parent)},
    )  # fmt: skip
    return catalogue("en", copy)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_catalogue_is_that_of_the_source(language: str, source: Path) -> None:
    assert len(messages(source)) > 100
    assert messages(catalogue(language)) == messages(source), "run: make messages"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated(language: str) -> None:
    for comments, strings in entries(catalogue(language)):
        assert "fuzzy" not in comments, strings
        assert "#~" not in comments, strings
        translated = [text for keyword, text in strings.items() if keyword.startswith("msgstr")]
        assert translated and all(translated), strings


@pytest.mark.parametrize("language", ["es", "fr"])
def test_most_texts_differ_from_the_english_ones(language: str) -> None:
    same = {
        one["msgid"] for _, one in entries(catalogue(language)) if one.get("msgstr") == one["msgid"]
    }
    assert same <= {
        "%(number)s ms", "%(number)s s", "Webhooks", "Dates", "Pages", "copies", "error", "note",
        "secret", "source", "version",
    }  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_compiled_is_what_is_written(language: str) -> None:
    path = catalogue(language)
    with path.with_suffix(".mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    for _, strings in entries(path):
        if "msgstr" in strings:
            assert compiled.gettext(strings["msgid"]) == strings["msgstr"]
        else:
            found = compiled.ngettext(strings["msgid"], strings["msgid_plural"], 1)
            assert found == strings["msgstr[0]"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_gaps_in_a_text_are_the_same(language: str) -> None:
    for _, strings in entries(catalogue(language)):
        gaps = {part.split(")")[0] for part in strings["msgid"].split("%(")[1:]}
        for keyword, text in strings.items():
            if keyword.startswith("msgstr"):
                assert {part.split(")")[0] for part in text.split("%(")[1:]} == gaps, text


@pytest.mark.parametrize(
    ("language", "words", "english"),
    [
        ("es", ["Eventos de webhook", "abandonado", "demasiado tarde", "3,41 s de 3 s", "Proveedor",
                "Copias", "en la lista, lo más reciente primero", "Por ámbito",
                "exacto, o inicio*", "reintento 1"],
         ["dead letter", "too late", "newest first", "exact, or", "retry 1"]),
        ("fr", ["Événements de webhook", "abandonné", "trop tard", "3,41 s sur 3 s", "Fournisseur",
                "Copies", "affichés, les plus récents", "Par portée", "exact, ou début*",
                "nouvel essai 1"],
         ["dead letter", "too late", "newest first", "or start", "retry 1"]),
    ],
)  # fmt: skip
def test_the_list_in_another_language(
    text_of: Text, sample: Sample, settings: Any, language: str, words: list[str],
    english: list[str],
) -> None:  # fmt: skip
    for event_id in "ab":
        event = sample.event("slack", event_id, "t", {}, EventStatus.DEAD)
        sample.delivery(event, Outcome.FAILED, milliseconds=3412, retry_number=1)
    settings.LANGUAGE_CODE = language
    page = text_of(address(EVENTS))
    assert [word for word in words if word not in page] == []
    assert [word for word in english if word in page] == []


def test_an_event_in_spanish(text_of: Text, sample: Sample, settings: Any) -> None:
    event = sample.event("slack", "a", "t", {}, handled_by="shop.webhooks.book")
    sample.delivery(event, Outcome.DUPLICATE, conflict=True)
    settings.LANGUAGE_CODE = "es"
    page = text_of(address(EVENTS, event.pk))
    for words in ("Entregas", "duplicado", "cuerpo distinto", "3 cabeceras", "Procesamiento",
                  "Todas las entregas de este evento", "Ejecuciones de manejadores", "correcto",
                  "Contenido", "JSON con sangría", "Claves y huellas"):  # fmt: skip
        assert words in page, words
    assert "Resultado" in text_of(address(DELIVERIES))
