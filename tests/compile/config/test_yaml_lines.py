import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.compile.config.yaml_lines import YamlFaultError, parse_yaml_mapping


def fault_of(text: str) -> tuple[int | None, str]:
    with pytest.raises(YamlFaultError) as caught:
        parse_yaml_mapping(text)
    return caught.value.fault.line, caught.value.fault.text


def test_records_the_line_of_every_key() -> None:
    mapping = parse_yaml_mapping("# a comment\na: 1\n\nb:\n  c: 2\n  d:\n  - 3\n")
    assert mapping.values == {"a": 1, "b": {"c": 2, "d": [3]}}
    assert mapping.lines == {"a": 2, "b": 4, "b.c": 5, "b.d": 6}


def test_reports_every_repetition_of_a_key() -> None:
    mapping = parse_yaml_mapping("a: 1\nb: {c: 1, c: 2}\na: 2\na: 3\n")
    assert mapping.values == {"a": 1, "b": {"c": 1}}
    assert [(fault.line, fault.key, fault.text) for fault in mapping.faults] == [
        (2, "b.c", "given again (first in line 2); keep one of the two"),
        (3, "a", "given again (first in line 1); keep one of the two"),
        (4, "a", "given again (first in line 1); keep one of the two"),
    ]


def test_key_that_is_no_name_is_a_fault() -> None:
    mapping = parse_yaml_mapping("? [1, 2]\n: 3\n")
    assert [(fault.line, fault.text) for fault in mapping.faults] == [(1, "a key must be a name")]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a: [1\nb: 2", 2, "expected ',' or ']'"),
        ("a: 1\n\tb: 2", 2, "cannot start any token"),
        ("a: 'open", 1, "unexpected end of stream"),
        ("a: b: c", 1, "mapping values are not allowed"),
        ("a: 1\n---\nb: 2", 2, "another document"),
        ("a: 1\nb: \x07", 2, "character #x0007 is not allowed"),
        ("a: &x 1\nb: *x", 2, "`*x`: write the value itself"),
        ("a: !!int 1", 1, "`tag:yaml.org,2002:int`: values need no tag"),
        ("a: !!python/object:os.system x", 1, "values need no tag"),
        ("a: {b: {c: {[1]: 2}}}", 1, "unhashable key"),
    ],
)
def test_says_where_a_text_is_no_yaml(text: str, line: int, reason: str) -> None:
    where, what = fault_of(text)
    assert where == line
    assert reason in what


def test_syntax_error_names_the_column() -> None:
    assert fault_of("model: x\n  y: z\n") == (
        2,
        "not YAML: mapping values are not allowed here (column 4)",
    )


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n"])
def test_empty_file_is_a_fault(text: str) -> None:
    assert fault_of(text) == (
        None,
        "the file is empty; it needs at least `model: <directory>`",
    )


def test_list_is_a_fault() -> None:
    expected = "the file holds a list, not keys with values; write `key: value` lines"
    assert fault_of("- 1\n- 2\n") == (1, expected)


def test_scalar_is_a_fault() -> None:
    expected = "the file holds a single value, not keys with values; write `key: value` lines"
    assert fault_of("just text\n") == (1, expected)


def test_nesting_without_end_is_a_fault() -> None:
    assert fault_of("a: " + "[" * 100_000) == (
        None,
        "nested too deeply; a configuration has two levels",
    )


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("0", 0),
        ("999999999999999999", 999_999_999_999_999_999),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        # YAML 1.1 would read these as false, 128, 8, 31, 1000, a date and infinity.
        ("no", "no"),
        ("2:8", "2:8"),
        ("010", "010"),
        ("0x1f", "0x1f"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        (".inf", ".inf"),
        ("'8'", "8"),
    ],
)
def test_scalars_follow_the_core_schema(written: str, value: object) -> None:
    assert parse_yaml_mapping(f"a: {written}\n").values == {"a": value}


def test_number_too_long_for_an_integer_stays_text() -> None:
    digits = "9" * 5000
    assert parse_yaml_mapping(f"a: {digits}\n").values == {"a": digits}


def test_merge_key_is_a_key_like_any_other() -> None:
    assert parse_yaml_mapping("<<: {a: 1}\n").values == {"<<": {"a": 1}}


@given(st.text(max_size=60))
def test_any_text_gives_a_mapping_or_a_fault(text: str) -> None:
    try:
        mapping = parse_yaml_mapping(text)
    except YamlFaultError as error:
        assert error.fault.text
    else:
        assert all(line >= 1 for line in mapping.lines.values())


@given(st.text(alphabet="ab:[]{}-?!&*#|>'\"%@,. \n\t0e~<", max_size=40))
def test_any_yaml_punctuation_gives_a_mapping_or_a_fault(text: str) -> None:
    try:
        parse_yaml_mapping(text)
    except YamlFaultError as error:
        assert error.fault.text
