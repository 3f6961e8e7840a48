"""Sources become documents with places, or diagnostics; nothing raises."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from stagemesh.config import document as document_module
from stagemesh.config import opened as opened_module
from stagemesh.config.document import (
    Document,
    Findings,
    Source,
    read_json,
    read_mapping,
    read_yaml,
)
from stagemesh.config.opened import MAX_BYTES
from stagemesh.config.tree import MAX_DEPTH, MAX_VALUES, quoted
from stagemesh.config.yaml_core import core_loader
from stagemesh.spec.origin import Layer
from tests.config.speech import shown

SOURCE = Source(name="x.yaml", layer=Layer.DEPLOY, expected="a mapping with `stages`")


def good(text: str) -> Document:
    """Read YAML text that must be well."""
    findings: Findings = []
    document = read_yaml(text, SOURCE, findings)
    assert findings == []
    assert document is not None
    return document


def bad(text: str) -> list[str]:
    """Read YAML text and return what was found."""
    findings: Findings = []
    read_yaml(text, SOURCE, findings)
    return [shown(found) for found in findings]


def test_values_and_keys_know_their_line_and_column() -> None:
    """Origins name the file, the line, the column and the path, of a value or of its key."""
    document = good("a:\n  - b: 1\n    c: [x, 2.5]\n")
    assert document.value == {"a": ({"b": 1, "c": ("x", 2.5)},)}
    origin = document.origin(("a", 0, "c", 1))
    assert (str(origin), origin.path, origin.layer) == ("x.yaml:3:12", "a[0].c[1]", Layer.DEPLOY)
    assert str(document.key_origin(("a", 0, "c"))) == "x.yaml:3:5"
    assert document.origin(("a",), Layer.PLATFORM).layer is Layer.PLATFORM


def test_a_place_that_is_not_there_has_no_line() -> None:
    """Asking for the place of what was not written gives the file alone."""
    assert str(good("a: 1").origin(("b",))) == "x.yaml"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, word) for word in ("yes", "no", "on", "Off", "y", "tRue", "nUll")),
        *((word, True) for word in ("true", "True", "TRUE")),
        ("false", False),
        *((word, None) for word in ("", "~", "null", "Null")),
        *((text, text) for text in ("1:30", "1:30:05.5", "1_000", "0b11", "-0x10", "=", "<<")),
        ("2024-01-02", "2024-01-02"),
        ("0x1F", 31),
        ("0o17", 15),
        ("0", 0),
        ("+5", 5),
        ("1e3", 1000.0),
        ("1.", 1.0),
        ("-.5", -0.5),
        ("00.5", 0.5),
        ("'1'", "1"),
        ("'010'", "010"),
    ],
)
def test_plain_scalars_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    """Nothing is a number, a word or nothing by a rule that only some readers still have."""
    document = good(f"a: {text}\n")
    assert document.value["a"] == value
    assert type(document.value["a"]) is type(value)


@pytest.mark.parametrize(("text", "number"), [("010", 10), ("-007", -7), ("00", 0), ("+09", 9)])
def test_a_whole_number_with_a_zero_in_front_is_refused(text: str, number: int) -> None:
    """It is 8 to one half of all readers, and 10 to the other."""
    findings: Findings = []
    read_yaml(f"a: {text}\n{text}: 1\n", SOURCE, findings)
    assert [str(found) for found in findings] == [
        f"error[CF005]: a number must not begin with `0`, got `{text}` (x.yaml:{place})"
        for place in ("1:4", "2:1")
    ]
    assert findings[0].help == f'write `{number}`, or `"{text}"` where text is meant'


def test_anchors_and_merge_keys_work_and_own_keys_win() -> None:
    """`<<` takes a mapping or a list of them; the nearest value holds."""
    document = good(
        "a: &a {x: 1, y: 1}\nb: &b {<<: *a, y: 2, z: 2}\nc: {<<: [*b, *a], z: 3}\nd: [*a, *a]\n"
    )
    assert document.value["b"] == {"y": 2, "z": 2, "x": 1}
    assert document.value["c"] == {"z": 3, "y": 2, "x": 1}
    assert document.value["d"] == ({"x": 1, "y": 1}, {"x": 1, "y": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", "CF003 x.yaml:3:1: key `a` is given twice"),
        ("a: [1\n", "CF002 x.yaml:2:1: not valid YAML: did not find expected ',' or ']'"),
        ("a: *b\n", "CF002 x.yaml:1:4: not valid YAML: found undefined alias"),
        ("a: 1\n---\nb: 1\n", "CF002 x.yaml:2:1: not valid YAML: more than one document"),
        ("a:\n\t- 1\n", "CF002 x.yaml:2:1: not valid YAML: a tab in front of a value"),
        ("a: @b\n", "CF002 x.yaml:1:4: not valid YAML: found character that cannot start any"),
        (
            "a:\n  - b: 0\n c: 1\n",
            "CF002 x.yaml:3:2: not valid YAML: the indentation does not match the lines above",
        ),
        ("a: b: c\n", "CF002 x.yaml:1:5: not valid YAML: a `:` where no key can be"),
        ("a: \x01", "CF002 x.yaml: not valid YAML: "),
        ("", "CF004 x.yaml: expected a mapping with `stages`, got nothing"),
        ("- a\n", "CF004 x.yaml: expected a mapping with `stages`, got a list"),
        ("hello\n", "CF004 x.yaml: expected a mapping with `stages`, got a single value"),
        ("a: &a [*a]\n", "CF005 x.yaml:1:4: a value must not contain itself"),
        ("a: &a {<<: *a}\n", "CF005 x.yaml:1:4: `<<` takes another mapping, or a list of them"),
        ("a: {<<: 3}\n", "CF005 x.yaml:1:9: `<<` takes another mapping, or a list of them"),
        ("a: !!python/name:os.system x\n", "CF005 x.yaml:1:4: tag `!!python/name:os.system` is"),
        ("a: !!set {b}\n", "CF005 x.yaml:1:4: tag `!!set` is not supported"),
        ("a: !!int b\n", "CF005 x.yaml:1:4: tag `!!int` is not supported"),
        ("a: !!str 5\n", "CF005 x.yaml:1:4: tag `!!str` is not supported"),
        ("a: ! 5\n", "CF005 x.yaml:1:4: tag `!!int` is not supported"),
        ("a: &b !!null ''\n", "CF005 x.yaml:1:4: tag `!!null` is not supported"),
        ("!!str a: 1\n", "CF005 x.yaml:1:1: tag `!!str` is not supported"),
        ("a: !!map {b: 1}\n", "CF005 x.yaml:1:4: tag `!!map` is not supported"),
        ("a: !!seq [b]\n", "CF005 x.yaml:1:4: tag `!!seq` is not supported"),
        ("a: {!!merge b: {c: 1}}\n", "CF005 x.yaml:1:5: tag `!!merge` is not supported"),
        ("a: " + "1" * 90 + "\n", "CF005 x.yaml:1:4: `111111"),
        ("a: " + "0" * 5000 + "\n", "CF005 x.yaml:1:4: `000000"),
        ("a: 9223372036854775808\n", "CF005 x.yaml:1:4: a whole number must fit into 64 bits"),
        ("a: -9223372036854775809\n", "CF005 x.yaml:1:4: a whole number must fit into 64 bits"),
        ("0xffffffffffffffff: 1\n", "CF005 x.yaml:1:1: a whole number must fit into 64 bits"),
        ("a: .nan\n", "CF005 x.yaml:1:4: a number must be finite, got `nan`"),
        ("true: 1\n", "CF005 x.yaml:1:1: a key must be text, got `true`"),
        ("? [a]\n: 1\n", "CF005 x.yaml:1:3: a key must be text, got a collection"),
        ("!x a: 1\n", "CF005 x.yaml:1:1: tag `!x` is not supported"),
        ("a: !x 1\n", "CF005 x.yaml:1:4: tag `!x` is not supported"),
        ("b: " + "[" * 70 + "]" * 70, f"CF005 x.yaml:1:68: nested deeper than `{MAX_DEPTH}`"),
    ],
)
def test_what_cannot_be_read_is_told_once_with_its_place(text: str, expected: str) -> None:
    """Every malformed file gives one diagnostic."""
    found = bad(text)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_what_cannot_be_held_at_all_is_told_once() -> None:
    """Not also that it is no mapping."""
    findings: Findings = []
    assert read_mapping([object()], SOURCE, findings) is None
    assert [found.code for found in findings] == ["CF005"]


def test_words_are_keys_like_any_text() -> None:
    """`on`, `no` and `1:30` among them."""
    assert good("on: 1\nno: 2\n1:30: 3\n").value == {"on": 1, "no": 2, "1:30": 3}


def test_a_key_given_twice_points_to_the_first() -> None:
    """The note names the place of the first key."""
    findings: Findings = []
    read_yaml("a: 1\na: 2\n", SOURCE, findings)
    (note,) = findings[0].notes
    assert (note.message, str(note.origin)) == ("first given here", "x.yaml:1:1")


def test_a_few_aliases_cannot_fill_the_memory() -> None:
    """Aliases of aliases end at the limit, which is told once; merge keys count as well."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    assert [line.partition(": ")[2] for line in bad("\n".join(lines))] == [
        f"holds more than `{MAX_VALUES}` values"
    ]
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 9)]
    assert [line.partition(": ")[2] for line in bad("\n".join(lines))] == [
        f"holds more than `{MAX_VALUES}` values"
    ]


@pytest.mark.parametrize(("loader", "depth"), [(yaml.CSafeLoader, 20_000), (yaml.SafeLoader, 500)])
def test_absurd_nesting_is_an_error_in_every_form(
    loader: type, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither YAML parser nor the JSON parser brings the process down."""
    monkeypatch.setattr(document_module, "CoreLoader", core_loader(loader))
    findings: Findings = []
    assert read_yaml("[" * depth, SOURCE, findings) is None
    assert read_json("[" * 200_000, SOURCE, findings) is None
    assert len(findings) == 2
    assert {found.code for found in findings} <= {"CF002", "CF005"}


def test_a_long_json_text_has_no_limit_of_values() -> None:
    """It has no aliases, so it cannot be larger than it is."""
    findings: Findings = []
    document = read_json(f'{{"a": [{"0," * MAX_VALUES}0]}}', SOURCE, findings)
    assert document is not None
    assert findings == []


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    """Also one that never ends, and JSON text; the last byte that fits is read."""
    (tmp_path / "large.yaml").write_bytes(b"a" * (MAX_BYTES + 1))
    (tmp_path / "fits.yaml").write_bytes(b"a: 1" + b" " * (MAX_BYTES - 4))
    findings: Findings = []
    for name in (tmp_path / "large.yaml", Path("/dev/zero")):
        assert read_yaml(name, SOURCE, findings) is None
    assert read_json(" " * (MAX_BYTES + 1), SOURCE, findings) is None
    assert [shown(found) for found in findings] == [
        f"CF038 x.yaml: is larger than `{MAX_BYTES}` bytes"
    ] * 3
    assert read_yaml(tmp_path / "fits.yaml", SOURCE, findings) is not None
    assert read_json(f'{{"a": 1}}{" " * MAX_BYTES}', SOURCE, findings, max_bytes=None) is not None


def test_too_many_values_are_refused_before_any_is_made() -> None:
    """A long text is counted first; a long text of few values is read."""
    long = "x" * 20_000
    assert good(f"a: {long}").value == {"a": long}
    assert bad("a: [" + "[]," * (2 * MAX_VALUES) + "]") == [
        f"CF005 x.yaml: holds more than `{MAX_VALUES}` values"
    ]


def test_text_that_looks_like_a_variable_stays_text() -> None:
    """Nothing is put in for it."""
    text = "a: ${HOME}\nb: ${oc.env:HOME}\nc: $(id)\nd: '{{ x }}'\n"
    assert list(good(text).value.values()) == ["${HOME}", "${oc.env:HOME}", "$(id)", "{{ x }}"]


@pytest.mark.parametrize("name", ["missing.yaml", ".", "nul\0.yaml"])
def test_a_file_that_cannot_be_opened_is_told(name: str, tmp_path: Path) -> None:
    """A missing file, a folder and an impossible name are diagnostics."""
    findings: Findings = []
    assert read_yaml(tmp_path / name, SOURCE, findings) is None
    assert [found.code for found in findings] == ["CF001"]
    assert findings[0].message.startswith("cannot be read: ")


def test_a_file_that_is_no_utf_8_is_told_and_a_byte_order_mark_is_not(tmp_path: Path) -> None:
    """Encoding errors name the byte."""
    findings: Findings = []
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    assert read_yaml(tmp_path / "latin.yaml", SOURCE, findings) is None
    assert [found.message for found in findings] == ["not UTF-8 text: byte `3` is no character"]
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfa: 1")
    document = read_yaml(tmp_path / "bom.yaml", SOURCE, findings)
    assert document is not None
    assert document.value == {"a": 1}
    assert document.text == "a: 1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1, "a": 2}', "CF003 x.yaml: key `a` is given twice"),
        ('{"a": {"b": 1, "b": 2}}', "CF003 x.yaml: key `b` is given twice"),
        ('{"a": ', "CF002 x.yaml:1:7: not valid JSON: expecting value"),
        ('{"a": "\\ud800"}', "CF005 x.yaml: text must not hold half of a character"),
        ('{"\\udfff": 1}', "CF005 x.yaml: text must not hold half of a character"),
        ('{"a": NaN}', "CF005 x.yaml: a number must be finite, got `nan`"),
        ('{"a": ' + "9" * 5000 + "}", "CF002 x.yaml: not valid JSON: a number has too many digits"),
        ("[1]", "CF004 x.yaml: expected a mapping with `stages`, got a list"),
        ("[]", "CF004 x.yaml: expected a mapping with `stages`, got a list"),
        ("5", "CF004 x.yaml: expected a mapping with `stages`, got a single value"),
    ],
)
def test_json_is_as_strict_as_yaml(text: str, expected: str) -> None:
    """JSON text goes the same way, without places inside it."""
    findings: Findings = []
    read_json(text, SOURCE, findings)
    assert len(findings) == 1
    assert shown(findings[0]).startswith(expected)


def test_json_becomes_the_same_value_as_yaml() -> None:
    """One form behind both."""
    findings: Findings = []
    document = read_json('{"a": [1, {"b": null}], "c": true}', SOURCE, findings)
    assert document is not None
    assert document.value == good("a: [1, {b: null}]\nc: true").value


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": {1, 2}}, "CF005 x.yaml: a value of type `set` has no place here"),
        ({"a": Path("x")}, "CF005 x.yaml: a value of type `PosixPath` has no place here"),
        ({2**64: 1}, "CF005 x.yaml: a whole number must fit into 64 bits"),
        ({None: 1}, "CF005 x.yaml: a key must be text, got `null`"),
        ({"a": float("inf")}, "CF005 x.yaml: a number must be finite, got `inf`"),
        (5, "CF004 x.yaml: expected a mapping with `stages`, got a single value"),
    ],
)
def test_python_values_are_held_to_what_a_file_can_say(given: object, expected: str) -> None:
    """Objects that no file could hold are refused."""
    findings: Findings = []
    read_mapping(given, SOURCE, findings)
    assert [shown(found) for found in findings] == [expected]


def test_a_python_mapping_that_contains_itself_ends() -> None:
    """A cycle meets the limit of nesting."""
    findings: Findings = []
    cycle: dict[str, object] = {}
    cycle["a"] = cycle
    read_mapping(cycle, SOURCE, findings)
    assert [found.message for found in findings] == [f"nested deeper than `{MAX_DEPTH}` levels"]


def test_shown_values_stay_on_one_line_and_short() -> None:
    """Messages never break over what a user wrote."""
    assert quoted("a`b\nc") == "`a?b?c`"
    assert quoted("x" * 100) == f"`{'x' * 39}…`"
    assert [quoted(item) for item in (None, True, 1.5)] == ["`null`", "`true`", "`1.5`"]
    assert quoted("True") == "`True`"


def test_a_pipe_is_read_to_its_end() -> None:
    """As a shell gives the output of a command for a file."""
    there, here = os.pipe()
    os.write(here, b"async_chunk: true\n")
    os.close(here)
    findings: Findings = []
    document = read_yaml(Path(f"/dev/fd/{there}"), SOURCE, findings)
    os.close(there)
    assert findings == []
    assert document is not None
    assert document.value == {"async_chunk": True}


def test_a_pipe_into_which_nobody_writes_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing hangs: neither opening nor reading it."""
    monkeypatch.setattr(opened_module, "PATIENCE_S", 0.05)
    os.mkfifo(tmp_path / "fifo")
    findings: Findings = []
    assert read_yaml(tmp_path / "fifo", SOURCE, findings) is None
    assert [shown(found) for found in findings] == [
        "CF001 x.yaml: cannot be read: nothing came for 0.05 s"
    ]
