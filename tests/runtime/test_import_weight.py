from __future__ import annotations

import subprocess
import sys

TORCH_FREE = [
    "sampling_params",
    "sampling_checks",
    "request_fields",
    "vocabulary_check",
    "engine_options",
    "memory_check",
    "padding_price",
    "bad_words",
    "token_texts",
    "openai_logprobs",
    "outputs",
    "parallel_sampling",
    "unsupported_fields",
    "stop_strings",
    "messages",
    "prompt_lines",
    "prompts",
    "duplicate_ids",
    "records",
    "distribution",
    "metrics",
    "tokenizer",
    "detokenizer",
]


def test_the_text_half_imports_neither_torch_nor_transformers() -> None:
    imports = "; ".join(f"import neuron_llm.runtime.{name}" for name in TORCH_FREE)
    check = "import sys; print(sorted({'torch', 'transformers', 'tokenizers'} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", f"{imports}; {check}"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
