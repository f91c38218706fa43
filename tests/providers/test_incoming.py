"""Bodies as they come, and what can be read from them."""

from __future__ import annotations

import json
from urllib.parse import quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_webhook_idempotency.exceptions import MalformedWebhook
from django_webhook_idempotency.providers import Incoming
from django_webhook_idempotency.providers.incoming import (
    MAX_FORM_FIELDS,
    MAX_JSON_DEPTH,
    as_object,
    brackets,
    decode_text,
    media_type,
    parse_form,
    parse_json,
    text_at,
)

from .cases import FORM, incoming

TOO_DEEP = f"deeper than {MAX_JSON_DEPTH}"


def nest(depth, core="1", opening="[", closing="]"):
    return opening * depth + core + closing * depth


class TestDepth:
    """WB-062: a bound of our own, the same on every version of Python."""

    def test_the_bound_is_100(self):
        assert MAX_JSON_DEPTH == 100

    @pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
    @pytest.mark.parametrize("core", ["1", "[]", '"]"'])
    def test_the_last_level_that_is_let_in(self, opening, closing, core):
        levels = opening.count("[") + opening.count("{")
        depth = MAX_JSON_DEPTH // levels - (core == "[]") * (levels == 1)
        text = nest(depth, core if levels == 1 else "1", opening, closing)

        assert parse_json(text) == json.loads(text)
        with pytest.raises(MalformedWebhook, match=TOO_DEEP):
            parse_json("[" + text + "]")

    @pytest.mark.parametrize(
        "string",
        [
            nest(200, "", "[", ""),
            nest(200, "", "{", ""),
            "]" * 200,
            '"' + "[" * 200,
            '[\\"' * 200,
            "\\" + "[" * 200,
            "[\\" * 200,
            '\\"[' * 200 + "\\",
            '"\\\\"' * 50 + "[" * 200,
        ],
    )
    def test_brackets_in_strings_do_not_count(self, string):
        document = {"a": string, "b": [{string: string}], "c": [string] * 200}

        assert parse_json(json.dumps(document)) == document
        assert parse_json(json.dumps(string)) == string

    @pytest.mark.parametrize(
        "prefix", ["", '"\\\\",', '"\\"",', '"\\\\\\"",', '"]]]",', '"\\\\\\\\",']
    )
    def test_brackets_after_strings_count(self, prefix):
        fits, too_deep = (f"[{prefix}{nest(depth)}]" for depth in (99, 100))

        assert parse_json(fits) == json.loads(fits)
        with pytest.raises(MalformedWebhook, match=TOO_DEEP):
            parse_json(too_deep)

    def test_width_is_not_depth(self):
        wide = [[{"a": [i]}] for i in range(5_000)]

        assert parse_json(json.dumps(wide)) == wide

    def test_depth_in_the_middle_counts(self):
        with pytest.raises(MalformedWebhook, match=TOO_DEEP):
            parse_json("[" + "[]," * 500 + nest(100) + ",[]]")

    def test_what_is_never_closed_does_not_reach_the_parser(self):
        with pytest.raises(MalformedWebhook, match=TOO_DEEP):
            parse_json("[" * 1_000_000)

    @pytest.mark.parametrize(
        "text", ["]" * 200 + "[" * 200, '"' + "[" * 101, "[" * 100 + "}" * 200]
    )
    def test_what_is_not_balanced_is_malformed(self, text):
        with pytest.raises(MalformedWebhook):
            parse_json(text)

    @given(
        st.recursive(
            st.none() | st.text('[]{}"\\a', max_size=6),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text('["\\', max_size=3), inner, max_size=2)
            ),
        )
    )
    def test_only_structure_is_left_of_json(self, document):
        def structure(value):
            if isinstance(value, dict):
                return "{" + "".join(map(structure, value.values())) + "}"
            if isinstance(value, list):
                return "[" + "".join(map(structure, value)) + "]"
            return ""

        assert brackets(json.dumps(document).encode()) == structure(document).encode()


class TestJson:
    @pytest.mark.parametrize("text", ["", " ", "{", "{'a': 1}", "[1,]", "1 2", "\ufeff{}", "nul"])
    def test_what_is_no_json_is_malformed(self, text):
        with pytest.raises(MalformedWebhook):
            parse_json(text)

    def test_an_integer_too_long_for_python_is_malformed(self):
        """WB-062: this is a ValueError that is no JSONDecodeError."""
        with pytest.raises(MalformedWebhook):
            parse_json('{"x": ' + "9" * 5_000 + "}")

    def test_nul_and_surrogate_are_text(self):
        """WB-060."""
        assert parse_json(b'["a\\u0000b", "\\ud800"]') == ["a\0b", "\ud800"]
        assert parse_json('"\ud800"') == "\ud800"

    @pytest.mark.parametrize("document", [None, [], [{}], "a", 1, True])
    def test_only_an_object_is_an_object(self, document):
        with pytest.raises(MalformedWebhook, match="not an object"):
            as_object(document)
        with pytest.raises(MalformedWebhook, match="not an object"):
            _ = incoming(json.dumps(document)).json_object

    def test_an_object_is_parsed_once(self):
        delivery = incoming('{"a": 1}')

        assert delivery.json_object == {"a": 1}
        assert delivery.json is delivery.json_object


class TestDecoding:
    """WB-059."""

    @pytest.mark.parametrize(
        ("body", "charset", "text"),
        [
            (b"", "", ""),
            ("è".encode(), "", "è"),
            ("è".encode(), "iso-8859-1", "è"),
            (b"\xef\xbb\xbf\xc3\xa8", "", "è"),
            (b"\xe8", "iso-8859-1", "è"),
            (b"\xe8", "ISO-8859-1", "è"),
            ("è".encode("utf-16"), "utf-16", "è"),
            (b"\xc3\xa8", "no-such-charset", "è"),
        ],
    )
    def test_utf_8_goes_first_then_what_is_declared(self, body, charset, text):
        assert decode_text(body, charset) == text

    @pytest.mark.parametrize(
        "charset",
        [
            *["", "utf-8", "ascii", "nonsense", "a\0b", "base64", "hex", "rot13", "undefined"],
            *["\ud800", "x" * 10_000, "../utf_8", "encodings.utf_8"],
        ],
    )
    def test_neither_is_malformed(self, charset):
        with pytest.raises(MalformedWebhook, match="not text"):
            decode_text(b"\xe8\xff", charset)


class TestForm:
    @pytest.mark.parametrize(
        ("body", "fields"),
        [
            (b"", {}),
            (b"a=1&b=2", {"a": "1", "b": "2"}),
            (b"a=1&a=2", {"a": "1"}),
            (b"a=&b", {"a": "", "b": ""}),
            (b"a+b=c+d%20%2B", {"a b": "c d +"}),
            (b"a=1;b=2", {"a": "1;b=2"}),
            (b"a=%C3%A8&b=\xc3\xa8", {"a": "è", "b": "è"}),
            (b"a=%00", {"a": "\0"}),
            (b"a=%zz%", {"a": "%zz%"}),
        ],
    )
    def test_fields(self, body, fields):
        assert parse_form(body) == fields
        assert incoming(body, content_type=FORM).form == fields

    def test_the_declared_charset_is_a_second_try(self):
        """WB-059."""
        assert parse_form(b"a=%E8", "iso-8859-1") == {"a": "è"}
        assert parse_form(b"a=%C3%A8", "iso-8859-1") == {"a": "è"}
        assert parse_form(b"a=\xe8&b=%E8", "iso-8859-1") == {"a": "è", "b": "è"}

    @pytest.mark.parametrize(
        ("body", "charset"),
        [
            (b"a=%E8", ""),
            (b"a=%E8", "nonsense"),
            (b"a=%E8", "a\0b"),
            (b"a=%ED%A0%80", ""),
            (b"%FF=1", ""),
            (b"a=\xe8", ""),
        ],
    )
    def test_what_does_not_decode_is_malformed(self, body, charset):
        """Two ids that do not decode must not both become replacement characters."""
        with pytest.raises(MalformedWebhook):
            parse_form(body, charset)

    def test_the_number_of_fields_is_bounded(self):
        fits = "&".join(f"f{n}=" for n in range(MAX_FORM_FIELDS)).encode()

        assert len(parse_form(fits)) == MAX_FORM_FIELDS == 1000
        with pytest.raises(MalformedWebhook, match="form"):
            parse_form(fits + b"&one=more")
        with pytest.raises(MalformedWebhook):
            parse_form(b"&" * 1_000_000, "latin-1")

    def test_the_payload_of_a_form(self):
        document = {"a": "1&2=+%", "ñ": None}
        delivery = incoming("x=1&payload=" + quote_plus(json.dumps(document)), {}, FORM)

        assert delivery.form_payload == document
        assert delivery.form_payload is delivery.form_payload

    @pytest.mark.parametrize("payload", [None, "", "{", nest(101), "\ufeff{}"])
    def test_a_payload_that_is_no_json_is_malformed(self, payload):
        body = "" if payload is None else urlencode({"payload": payload})

        with pytest.raises(MalformedWebhook):
            _ = incoming(body, {}, FORM).form_payload

    def test_only_its_media_type_makes_it_a_form(self):
        assert incoming("a=1", {}, FORM).is_form
        assert not incoming("a=1", {}, "application/json").is_form
        assert not incoming("a=1", {}, "").is_form


class TestHeaders:
    def test_any_case_and_without_the_blanks_around(self):
        delivery = incoming("", {"X-Thing": " \ta b\t "})

        assert delivery.header("x-thing") == delivery.header("X-THING") == "a b"
        assert delivery.header("X-Other") == ""
        assert delivery.headers == {"x-thing": " \ta b\t "}

    def test_other_characters_stay(self):
        assert incoming("", {"X-Thing": "\xa0a\x1f"}).header("X-Thing") == "\xa0a\x1f"


class TestMediaType:
    @pytest.mark.parametrize(
        ("header", "expected"),
        [
            ("", ("", "")),
            ("application/json", ("application/json", "")),
            (" Application/JSON ; Charset=UTF-8", ("application/json", "UTF-8")),
            (f'{FORM}; charset="iso-8859-1"', (FORM, "iso-8859-1")),
            ("application/json; boundary=x", ("application/json", "")),
            ("application/json; charset*=nonsense''x", ("", "")),
            ("application/json; charset*0; charset*", ("", "")),
        ],
    )
    def test_type_and_charset(self, header, expected):
        assert media_type(header) == expected

    @given(st.text("abc/;=*\"\\'%0\0\n éÿ", max_size=30).map("a/b; charset".__add__) | st.text())
    def test_nothing_that_a_stranger_writes_escapes(self, header):
        """The Content-Type is read before the signature is checked."""
        content_type, charset = media_type(header)

        assert isinstance(content_type, str)
        assert isinstance(charset, str)

    def test_a_stored_body_is_read_as_it_came(self):
        delivery = Incoming.stored(b"a=%E8", f"{FORM}; charset=iso-8859-1")

        assert delivery.form == {"a": "è"}
        assert delivery.body == b"a=%E8"


class TestTextAt:
    DOCUMENT = {"a": {"b": {"c": "deep"}, "d": " x "}, "n": 5, "l": ["x"], "e": "", "s": " \n"}

    @pytest.mark.parametrize(
        ("path", "text"),
        [("a.b.c", "deep"), ("a.d", " x ")],
    )
    def test_text_as_it_stands(self, path, text):
        assert text_at(self.DOCUMENT, path) == text

    @pytest.mark.parametrize(
        "path", ["a", "a.b", "a.x", "a.d.c", "x.y", "n", "l", "l.0", "e", "s", "n.x", ""]
    )
    def test_anything_else_is_empty(self, path):
        assert text_at(self.DOCUMENT, path) == ""

    @pytest.mark.parametrize("document", [None, [], "a", 5])
    def test_of_what_is_no_object(self, document):
        assert text_at(document, "a") == ""


def test_repr_shows_no_payload():
    assert "secret" not in repr(incoming("secret body", {"x": "secret"}))
