"""A small byte-level tokenizer, saved as a Hugging Face tokenizer directory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

BOS, EOS, END = "<s>", "</s>", "<end>"
SPECIAL_TOKENS = (BOS, EOS, END)

CHAT_TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)

_MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "w"), ("Ġ", "hello")]


def byte_level_backend(*, adds_bos: bool = False, adds_eos: bool = False) -> Backend:
    """Return a BPE of the 256 bytes and six merges; specials take the ids after them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *("".join(merge) for merge in _MERGES)]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    backend = Backend(models.BPE(vocab=vocab, merges=_MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    ids = {token: backend.token_to_id(token) for token in SPECIAL_TOKENS}
    before = f"{BOS} " if adds_bos else ""
    after = f" {EOS}" if adds_eos else ""
    backend.post_processor = processors.TemplateProcessing(
        single=f"{before}$A{after}", special_tokens=list(ids.items())
    )
    return backend


def byte_fallback_backend() -> Backend:
    """Return a SentencePiece-like BPE: words with a leading space mark, bytes for the rest."""
    tokens = ["<unk>", *SPECIAL_TOKENS, *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["▁", "▁hello", "▁world", "hello", "a", "b", "!"]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    backend = Backend(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return backend


def save_tokenizer(
    directory: Path,
    backend: Backend,
    *,
    chat_template: str | None = None,
    bos_token: str | None = BOS,
) -> Path:
    """Write `tokenizer.json` and `tokenizer_config.json` and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    backend.save(str(directory / "tokenizer.json"))
    config: dict[str, Any] = {"tokenizer_class": "TokenizersBackend", "eos_token": EOS}
    if bos_token is not None:
        config["bos_token"] = bos_token
    if chat_template is not None:
        config["chat_template"] = chat_template
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


def byte_level_ids(backend: Backend, data: bytes) -> list[int]:
    """Return the one-byte tokens of `data` in a byte-level tokenizer."""
    return token_ids(backend, [_BYTE_TO_TOKEN[byte] for byte in data])


def byte_fallback_ids(backend: Backend, data: bytes) -> list[int]:
    """Return the one-byte tokens of `data` in a byte-fallback tokenizer."""
    return token_ids(backend, [f"<0x{byte:02X}>" for byte in data])


def token_ids(backend: Backend, tokens: Sequence[str]) -> list[int]:
    """Return the ids of the named tokens."""
    vocab = backend.get_vocab()
    return [vocab[token] for token in tokens]


def _byte_to_token() -> dict[int, str]:
    # The byte-level alphabet: printable bytes stand for themselves, the others, in order, for the
    # characters from 256 on.
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    named = {byte: chr(byte) for byte in printable}
    return named | {byte: chr(256 + index) for index, byte in enumerate(others)}


_BYTE_TO_TOKEN = _byte_to_token()
