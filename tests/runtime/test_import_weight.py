from __future__ import annotations

import subprocess
import sys

TORCH_FREE = [
    "sampling.sampling_params",
    "sampling.sampling_checks",
    "batch.request_fields",
    "sampling.vocabulary_check",
    "engine.options",
    "sampling.greedy_only",
    "watch.chrome_trace",
    "watch.observer",
    "text.bad_words",
    "text.token_texts",
    "batch.openai_logprobs",
    "engine.outputs",
    "engine.parallel_sampling",
    "sampling.unsupported_fields",
    "text.stop_strings",
    "text.messages",
    "batch.prompt_line",
    "batch.prompt_file",
    "batch.duplicate_ids",
    "batch.records",
    "batch.distribution",
    "batch.metrics",
    "text.tokenizer",
    "text.detokenizer",
]


def test_the_text_half_imports_neither_torch_nor_transformers() -> None:
    imports = "; ".join(f"import neuron_llm.runtime.{name}" for name in TORCH_FREE)
    check = "import sys; print(sorted({'torch', 'transformers', 'tokenizers'} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", f"{imports}; {check}"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
