"""Reading traces: every known format, and every way in which a file or a row can be bad."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_llm.errors import NeuronLLMError
from neuron_llm.report.workload.trace import BadRow, Trace, TraceRequest
from neuron_llm.report.workload.trace_formats import TRACE_FORMATS
from neuron_llm.report.workload.trace_reader import read_trace

OWN = "arrival_s,prompt_tokens,output_tokens\n"


def read(tmp_path: Path, content: str | bytes) -> Trace:
    path = tmp_path / "trace"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_trace(path)


def refusal(tmp_path: Path, content: str | bytes) -> NeuronLLMError:
    with pytest.raises(NeuronLLMError) as caught:
        read(tmp_path, content)
    return caught.value


def lengths(trace: Trace) -> list[tuple[int, int | None]]:
    return [(request.prompt_tokens, request.output_tokens) for request in trace.requests]


def reasons(trace: Trace) -> dict[int, str]:
    return {row.line: row.reason for row in trace.bad_rows}


def test_own_columns_as_csv(tmp_path: Path) -> None:
    trace = read(tmp_path, OWN + "0.000,374,44\n4.315,396,\n")
    assert trace == Trace(
        format_name="neuron-llm",
        requests=(TraceRequest(0.0, 374, 44, (), 2), TraceRequest(4.315, 396, None, (), 3)),
        bad_rows=(),
        block_size=None,
        num_unsorted=0,
    )


def test_own_columns_as_json_lines(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        '{"arrival_s":1.5,"prompt_tokens":9,"output_tokens":null,"hash_ids":[4,7,1],"block_size":4}\n'
        '{"prompt_tokens":8,"arrival_s":2,"output_tokens":3,"hash_ids":[4,7],"block_size":4}\n'
        '{"prompt_tokens":8,"arrival_s":2,"output_tokens":3}\n',
    )
    assert trace.requests == (
        TraceRequest(0.0, 9, None, (4, 7, 1), 1),
        TraceRequest(0.5, 8, 3, (4, 7), 2),
        TraceRequest(0.5, 8, 3, (), 3),
    )
    assert trace.block_size == 4


def test_hash_ids_in_a_csv_cell_are_a_json_list(tmp_path: Path) -> None:
    header = "arrival_s,prompt_tokens,output_tokens,hash_ids,block_size\n"
    trace = read(tmp_path, header + '0,9,1,"[4, 7, 1]",4\n1,3,1,,\n2,9,1,4 7 1,4\n')
    assert [request.hash_ids for request in trace.requests] == [(4, 7, 1), ()]
    assert reasons(trace) == {4: "`hash_ids` is `4 7 1`, not a list"}


def test_azure_columns_with_both_spellings_of_the_time(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2023-11-16 18:15:46.6805900,374,44\r\n"
        "2023-11-16 18:15:50.9951690+00:00,396,109\r\n"
        "2023-11-16 19:15:46.680590+01:00,5,6\r\n"
        "yesterday,5,6\r\n",
    )
    assert trace.format_name == "Azure"
    assert lengths(trace) == [(374, 44), (5, 6), (396, 109)]
    assert [r.arrival_s for r in trace.requests] == pytest.approx([0, 0, 4.314579], abs=1e-6)
    assert reasons(trace) == {5: "`TIMESTAMP` is `yesterday`, not a date and time"}


@pytest.mark.parametrize("more", ["", "Session ID,Elapsed time,"])
def test_burstgpt_columns_where_no_response_is_a_failed_request(tmp_path: Path, more: str) -> None:
    cells = "9f,3.5," if more else ""
    trace = read(
        tmp_path,
        f"Timestamp,{more}Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        f"5,{cells}ChatGPT,472,18,490,Conversation log\n"
        f'45.5,{cells}GPT-4,1087,0,1087,"Conversation, log"\n'
        f"118,{cells}ChatGPT,417,276,693,API log\n",
    )
    assert trace.format_name == "BurstGPT"
    assert lengths(trace) == [(472, 18), (417, 276)]
    assert [request.arrival_s for request in trace.requests] == [0.0, 113.0]
    assert reasons(trace) == {3: "`Response tokens` is 0: the request failed"}


def test_mooncake_columns_count_milliseconds_and_blocks_of_512(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        '{"timestamp": 27482, "input_length": 1955, "output_length": 5, "hash_ids": [0, 1, 2, 3]}\n'
        '{"timestamp": 30535, "input_length": 512, "output_length": 1, "hash_ids": [0]}\n',
    )
    assert (trace.format_name, trace.block_size) == ("Mooncake", 512)
    assert [request.arrival_s for request in trace.requests] == pytest.approx([0.0, 3.053])
    assert [request.hash_ids for request in trace.requests] == [(0, 1, 2, 3), (0,)]


def test_qwen_bailian_columns_count_seconds_and_blocks_of_16(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        '{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 20, '
        '"output_length": 132, "type": "text", "turn": 1, "hash_ids": [1089, 1090]}\n'
        '{"chat_id": 160, "parent_chat_id": 159, "timestamp": 63.0, "input_length": 35, '
        '"output_length": 7, "type": "text", "turn": 2, "hash_ids": [1089, 1090, 1091]}\n',
    )
    assert (trace.format_name, trace.block_size) == ("Qwen-Bailian", 16)
    assert lengths(trace) == [(20, 132), (35, 7)]
    assert trace.requests[1].arrival_s == pytest.approx(1.886)


def test_servegen_columns_online_and_offline(tmp_path: Path) -> None:
    online = read(tmp_path, "request_id,timestamp,input_tokens,output_tokens\n0,0.25,19,2\n")
    assert (online.format_name, lengths(online)) == ("ServeGen", [(19, 2)])
    offline = read(
        tmp_path,
        '{"request_id": 0, "type": "text", "input_length": 20, "hash_ids": [655296, 655297]}\n'
        '{"request_id": 1, "type": "text", "input_length": 9, "output_length": 70}\n',
    )
    assert (offline.format_name, offline.block_size) == ("ServeGen offline", 16)
    assert lengths(offline) == [(20, None), (9, 70)]
    assert [request.arrival_s for request in offline.requests] == [0.0, 0.0]


@pytest.mark.parametrize("known", TRACE_FORMATS, ids=lambda known: known.name)
def test_every_format_is_told_by_its_columns_in_any_order(tmp_path: Path, known: object) -> None:
    assert isinstance(known, type(TRACE_FORMATS[0]))
    columns = ["extra", *reversed(known.columns)]
    values = {"TIMESTAMP": "2024-05-10 00:00:00+00:00", "hash_ids": "", "type": "text"}
    row = ",".join(values.get(column, "7") for column in columns)
    trace = read(tmp_path, f"{','.join(columns)}\n{row}\n")
    assert (trace.format_name, trace.requests[0].prompt_tokens) == (known.name, 7)


def test_requests_are_ordered_by_arrival_and_then_by_line(tmp_path: Path) -> None:
    trace = read(tmp_path, OWN + "7,1,1\n5,2,1\n7,3,1\n5,4,1\n5,5,1\n9,6,1\n")
    assert [request.line for request in trace.requests] == [3, 5, 6, 2, 4, 7]
    assert [request.arrival_s for request in trace.requests] == [0, 0, 0, 2, 2, 4]
    assert trace.num_unsorted == 2


def test_byte_order_mark_line_ends_blank_lines_quotes_and_blanks_change_nothing(
    tmp_path: Path,
) -> None:
    plain = read(tmp_path, OWN + "0,374,44\n\n1,396,109\n")
    windows = '"arrival_s", prompt_tokens ,output_tokens\r\n"0", "374", 44 \r\n \r\n1,396,109'
    assert read(tmp_path, b"\xef\xbb\xbf" + windows.encode()) == plain
    assert read(tmp_path, (OWN + "0,374,44\n\n1,396,109\n").replace("\n", "\r")) == plain


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("0,-5,1", "`prompt_tokens` is -5, the least is 1"),
        ("0,0,1", "`prompt_tokens` is 0, the least is 1"),
        ("0,5,-1", "`output_tokens` is -1, the least is 0"),
        ("0,nan,1", "`prompt_tokens` is `nan`, not a whole number"),
        ("0,inf,1", "`prompt_tokens` is `inf`, not a whole number"),
        ("0,5.5,1", "`prompt_tokens` is `5.5`, not a whole number"),
        ("0,,1", "`prompt_tokens` is missing"),
        ("0,five,1", "`prompt_tokens` is `five`, not a number"),
        ("0,1_000,1", "`prompt_tokens` is `1_000`, not a number"),
        ("0,2147483648,1", "`prompt_tokens` is 2147483648, the most is 2147483647"),
        ("0,1e300,1", "`prompt_tokens` is 1e300, the most is 2147483647"),
        ("-1,5,1", "`arrival_s` is `-1`, not from 0 to 1e+11 seconds"),
        ("nan,5,1", "`arrival_s` is `nan`, not from 0 to 1e+11 seconds"),
        ("1700000000000,5,1", "`arrival_s` is `1700000000000`, not from 0 to 1e+11 seconds"),
        (",5,1", "`arrival_s` is missing"),
        ("0,5", "the line has 2 fields, the header 3"),
        ("0,5,1,7", "the line has 4 fields, the header 3"),
        ('0,"5,1', "the line is not CSV: unexpected end of data"),
        ("arrival_s,prompt_tokens,output_tokens", "`arrival_s` is `arrival_s`, not a number"),
        ("0,\x1b[31m,1", "`prompt_tokens` is `\N{REPLACEMENT CHARACTER}[31m`, not a number"),
    ],
)
def test_bad_csv_row_is_named_and_costs_no_other(tmp_path: Path, row: str, reason: str) -> None:
    trace = read(tmp_path, f"{OWN}0,1,1\n{row}\n2,2,2\n")
    assert trace.bad_rows == (BadRow(3, reason),)
    assert lengths(trace) == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"arrival_s":0', "the line is not JSON: Expecting ',' delimiter: line 1 column 15"),
        ("[1,2]", "the line is JSON, but no object"),
        ('{"arrival_s":0,"arrival_s":1}', "the line has the key `arrival_s` twice"),
        ("[" * 100_000, "the line is nested too deeply"),
        (f'{{"arrival_s":{"9" * 5000}}}', "the line holds an integer of thousands of digits"),
        ('{"arrival_s":0,"output_tokens":1}', "`prompt_tokens` is missing"),
        ('{"arrival_s":0,"prompt_tokens":true}', "`prompt_tokens` is `true`, not a number"),
        ('{"arrival_s":0,"prompt_tokens":NaN}', "`prompt_tokens` is `NaN`, not a whole number"),
        ('{"arrival_s":0,"prompt_tokens":[]}', "`prompt_tokens` is `[]`, not a number"),
        (
            '{"arrival_s":0,"prompt_tokens":9,"hash_ids":[1,2]}',
            "`block_size` is missing",
        ),
        (
            '{"arrival_s":0,"prompt_tokens":9,"hash_ids":[1,2],"block_size":8}',
            "`block_size` is 8, in lines above 4",
        ),
        (
            '{"arrival_s":0,"prompt_tokens":9,"hash_ids":[1],"block_size":4}',
            "`hash_ids` has 1 ids, but 9 tokens are 3 blocks of 4",
        ),
        (
            '{"arrival_s":0,"prompt_tokens":9,"hash_ids":[1,2,3,4],"block_size":4}',
            "`hash_ids` has 4 ids, but 9 tokens are 3 blocks of 4",
        ),
        (
            '{"arrival_s":0,"prompt_tokens":9,"hash_ids":[1,true,3],"block_size":4}',
            "`hash_ids` is `[1, true, 3]`, not a list of integers",
        ),
    ],
)
def test_bad_json_row_is_named_and_costs_no_other(tmp_path: Path, row: str, reason: str) -> None:
    good = '{"arrival_s":0,"prompt_tokens":9,"output_tokens":1,"hash_ids":[1,2,3],"block_size":4}\n'
    trace = read(tmp_path, good + row + "\n" + good)
    ((line, found),) = reasons(trace).items()
    assert line == 2
    assert found.startswith(reason)
    assert [request.line for request in trace.requests] == [1, 3]


def test_bad_row_above_the_first_good_one_does_not_hide_the_format(tmp_path: Path) -> None:
    trace = read(tmp_path, '{"arrival_s":\n{"arrival_s":0,"prompt_tokens":9,"output_tokens":1}\n')
    assert lengths(trace) == [(9, 1)]
    assert list(reasons(trace)) == [1]


def test_whole_floats_and_answers_of_no_token_are_taken(tmp_path: Path) -> None:
    assert lengths(read(tmp_path, OWN + "0,374.0,0\n1,2e3,7\n")) == [(374, 0), (2000, 7)]


def test_text_that_is_not_utf_8_is_bad_only_where_a_value_is_read(tmp_path: Path) -> None:
    header = b"arrival_s,prompt_tokens,output_tokens,note\n"
    trace = read(tmp_path, header + b"0,5,1,caf\xe9\n1,\xe9,1,x\n")
    assert lengths(trace) == [(5, 1)]
    bad = "`prompt_tokens` is `\N{REPLACEMENT CHARACTER}`, not a number"
    assert reasons(trace) == {3: bad}


@pytest.mark.parametrize("content", ["", "\n \r\n\n", b"\xef\xbb\xbf"])
def test_empty_file_is_refused(tmp_path: Path, content: str | bytes) -> None:
    error = refusal(tmp_path, content)
    assert error.message == f"the trace `{tmp_path / 'trace'}` is empty"


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("a,b,c\n1,2,3\n", "`a`, `b`, `c`"),
        ("0.000,374,44\n4.315,396,109\n", "`0.000`, `374`, `44`"),
        ('{"a": 1}\n', "`a`"),
        ("{}\n", "none"),
        ("[{}]\n", "`[{}]`"),
        ('"a\nb\n', '`"a`'),
        (b"\xff\xfea\x00", "`\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}a"),
        (",".join("abcdefghijkl"), "`a`, `b`, `c`, `d`, `e`, `f`, `g`, `h`, ..."),
    ],
)
def test_unknown_columns_are_refused_with_the_known_ones(
    tmp_path: Path, content: str | bytes, columns: str
) -> None:
    error = refusal(tmp_path, content)
    assert f"has unknown columns: {columns}" in error.message
    assert error.hint is not None
    for known in TRACE_FORMATS:
        assert f"{known.name}: `{','.join(known.columns)}`" in error.hint


def test_compressed_file_is_told_to_be_one(tmp_path: Path) -> None:
    error = refusal(tmp_path, gzip.compress(f"{OWN}0,1,1\n".encode()))
    assert error.message.endswith("is compressed")
    assert error.hint == "decompress it first: `gzip -d FILE`"


def test_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, "arrival_s,prompt_tokens,output_tokens,prompt_tokens\n0,1,1,2\n")
    assert "has the column `prompt_tokens` twice" in error.message
    unread = read(tmp_path, "arrival_s,prompt_tokens,output_tokens,,\n0,5,1,,\n")
    assert lengths(unread) == [(5, 1)]


def test_file_without_a_usable_row_says_why(tmp_path: Path) -> None:
    assert refusal(tmp_path, OWN).message.endswith("has no usable row")
    error = refusal(tmp_path, OWN + "0,0,0\n0,x,0\n")
    reason = "`prompt_tokens` is 0, the least is 1 (line 2, and 1 more)"
    assert error.message.endswith(f"has no usable row: {reason}")
    assert refusal(tmp_path, '{"arrival_s"\n').message.endswith("(line 1)")


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NeuronLLMError, match=r"cannot read the trace .*: no such file"):
        read_trace(tmp_path / "absent.csv")
    with pytest.raises(NeuronLLMError, match=r"cannot read the trace .*: is a directory"):
        read_trace(tmp_path)


@given(
    rows=st.lists(
        st.one_of(
            st.tuples(st.integers(0, 99), st.integers(-2, 9), st.integers(-2, 9)).map(
                lambda row: ",".join(map(str, row))
            ),
            st.text(max_size=12),
        ),
        max_size=20,
    )
)
def test_every_line_is_a_request_or_a_bad_row_or_blank(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str]
) -> None:
    path = tmp_path_factory.mktemp("traces") / "trace.csv"
    content = (OWN + "0,1,1\n" + "\n".join(rows)).encode("utf-8", "replace")
    path.write_bytes(content)
    trace = read_trace(path)
    lines = content.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    filled = [number for number, line in enumerate(lines, start=1) if line.strip()]
    told = [1, *(r.line for r in trace.requests), *(row.line for row in trace.bad_rows)]
    assert sorted(told) == filled
    assert sorted(request.prompt_tokens for request in trace.requests)[0] >= 1


@given(data=st.binary(max_size=200))
def test_no_content_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("traces") / "trace.csv"
    for start in (b"", OWN.encode(), b'{"arrival_s":0,"prompt_tokens":9,"output_tokens":1}\n'):
        path.write_bytes(start + data)
        try:
            trace = read_trace(path)
        except NeuronLLMError as error:
            assert error.message.isprintable()
        else:
            assert all(row.reason.isprintable() for row in trace.bad_rows)


def test_prompts_without_room_for_an_answer_are_split_off(tmp_path: Path) -> None:
    trace = read(tmp_path, OWN + "0,63,1\n1,64,1\n2,65,1\nx,1,1\n")
    taken, refused = trace.split_by_length(64)
    assert lengths(taken) == [(63, 1)]
    assert [request.line for request in refused] == [3, 4]
    assert taken.bad_rows == trace.bad_rows
