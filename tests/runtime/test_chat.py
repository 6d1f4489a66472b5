"""A conversation: what the model is sent, what is kept, and replies that are stopped half way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice

import pytest
from conftest import Compiled
from tokenizer_factory import CHAT_TEMPLATE

from neuron_llm.artifact.artifact import Artifact
from neuron_llm.errors import RequestError
from neuron_llm.runtime.chat import ChatSession
from neuron_llm.runtime.engine.engine import Engine
from neuron_llm.runtime.sampling.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0, ignore_eos=True, max_tokens=6)


@pytest.fixture(scope="module")
def loaded(llama: Compiled) -> Engine:
    return Engine(Artifact.open(llama.artifact))


@pytest.fixture
def engine(loaded: Engine) -> Iterator[Engine]:
    """An engine that every test leaves as it found it: idle, with all KV blocks free."""
    num_free = num_free_blocks(loaded)
    yield loaded
    assert not loaded.has_unfinished_requests()
    assert num_free_blocks(loaded) == num_free


def num_free_blocks(engine: Engine) -> int:
    return engine.scheduler.kv_cache_manager.num_free_blocks


def completion(engine: Engine, token_ids: list[int]) -> str:
    """Return what the engine makes of a prompt outside of any conversation."""
    engine.add_request("alone", token_ids, GREEDY)
    text = ""
    while engine.has_unfinished_requests():
        text += "".join(output.new_text for output in engine.step())
    return text


def test_reply_is_that_of_the_template_and_is_kept(engine: Engine) -> None:
    session = ChatSession(engine, GREEDY)
    first = "".join(session.reply("hi"))
    turn = {"role": "user", "content": "hi"}
    assert first == completion(engine, engine.tokenizer.encode_messages([turn]))
    assert session.messages == (turn, {"role": "assistant", "content": first})


def test_second_turn_sees_the_first(engine: Engine) -> None:
    session = ChatSession(engine, GREEDY)
    for text in ("a", "b"):
        "".join(session.reply(text))
    *before, _ = session.messages
    expected = completion(engine, engine.tokenizer.encode_messages(before))
    assert session.messages[-1]["content"] == expected


def test_pieces_come_one_per_step(engine: Engine) -> None:
    # Three steps for a prompt of 33 tokens or more in chunks of 16, then five decodes.
    token_ids = engine.tokenizer.encode_messages([{"role": "user", "content": "x" * 20}])
    assert 32 < len(token_ids) <= 48
    assert len(list(ChatSession(engine, GREEDY).reply("x" * 20))) == 3 + 5


def test_reset_forgets_the_conversation(engine: Engine) -> None:
    session = ChatSession(engine, GREEDY)
    first = "".join(session.reply("hi"))
    session.reset()
    assert session.messages == ()
    assert "".join(session.reply("hi")) == first


def test_stopped_reply_keeps_its_pieces_and_frees_its_blocks(engine: Engine) -> None:
    long = SamplingParams(temperature=0, ignore_eos=True, max_tokens=None)
    session = ChatSession(engine, long)
    with closing(session.reply("hi")) as pieces:
        shown = "".join(islice(pieces, 12))
        assert engine.has_unfinished_requests()
    assert not engine.has_unfinished_requests()
    assert shown
    assert session.messages[-1] == {"role": "assistant", "content": shown}

    # The next reply is the one that a conversation with these turns gets anyway.
    session._params = GREEDY
    reply = "".join(session.reply("b"))
    *before, _ = session.messages
    assert reply == completion(engine, engine.tokenizer.encode_messages(before))


def test_turn_that_is_stopped_before_any_text_is_not_kept(engine: Engine) -> None:
    session = ChatSession(engine, GREEDY)
    with closing(session.reply("x" * 20)) as pieces:
        assert next(pieces) == ""
    assert session.messages == ()


def test_conversation_that_is_too_long_is_refused_and_stays_as_it_was(engine: Engine) -> None:
    session = ChatSession(engine, GREEDY)
    "".join(session.reply("hi"))
    before = session.messages
    with pytest.raises(RequestError) as caught:
        list(session.reply("x" * 64))
    assert caught.value.code == "prompt_too_long"
    assert caught.value.message.startswith("the conversation is too long: the prompt has ")
    assert caught.value.hint is not None and "`/reset`" in caught.value.hint
    assert session.messages == before


def test_raw_text_goes_on_where_it_was(engine: Engine) -> None:
    session = ChatSession(engine, GREEDY, raw=True)
    first = "".join(session.reply("hello"))
    assert first == completion(engine, engine.tokenizer.encode_prompt("hello"))
    second = "".join(session.reply("b"))
    transcript = f"hello{first}\nb"
    assert second == completion(engine, engine.tokenizer.encode_prompt(transcript))
    assert session.messages == ()
    session.reset()
    assert "".join(session.reply("hello")) == first


def test_template_that_is_given_replaces_the_models(engine: Engine) -> None:
    shouting = CHAT_TEMPLATE.replace("message['content']", "message['content'].upper()")
    turn = {"role": "user", "content": "hi"}
    expected = engine.tokenizer.encode_messages([turn], chat_template=shouting)
    session = ChatSession(engine, GREEDY, template=shouting)
    assert "".join(session.reply("hi")) == completion(engine, expected)


def test_wrong_template_shows_itself_before_the_first_turn(engine: Engine) -> None:
    with pytest.raises(RequestError) as caught:
        ChatSession(engine, GREEDY, template="{% for %}")
    assert caught.value.code == "invalid_chat_template"
