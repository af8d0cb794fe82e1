"""Chat templates in the manner of six families, written for these tests, each with its marks of what is generated.

Without the marks they are what most models ship: then what is learned has to be found by rendering prefixes, and the
marks say whether it was found right.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

MARKS = re.compile(r"\{%-? *(end)?generation *-?%\}")

TOOLS = "{% if tools %}{{ tools | tojson }}\n{% endif %}"
CALLS = (
    "{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>"
    "{% endfor %}{% endif %}"
)
FAMILIES = {
    # turns between <|im_start|> and <|im_end|>
    "chatml": (
        TOOLS + "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content or '' }}" + CALLS + "{{ '<|im_end|>\n' }}"
        "{% endgeneration %}{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    # headers with an empty line, a beginning of text
    "llama3": (
        "{{ bos_token }}" + TOOLS + "{% for m in messages %}"
        "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
        "{% if m.role == 'assistant' %}{% generation %}{{ (m.content or '') | trim }}" + CALLS + "{{ '<|eot_id|>' }}"
        "{% endgeneration %}{% else %}{{ m.content | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
    # no header for the assistant, roles must alternate, the system's words go into the first question
    "mistral": (
        "{{ bos_token }}{% set start = 1 if messages[0].role == 'system' else 0 %}{% for m in messages[start:] %}"
        "{% if m.role == 'user' %}{{ '[INST] ' }}"
        "{% if loop.first and start %}{{ messages[0].content + '\n\n' }}{% endif %}{{ m.content + ' [/INST]' }}"
        "{% elif m.role == 'tool' %}{{ '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}"
        "{% else %}{% generation %}{{ m.content or '' }}" + CALLS + "{{ eos_token }}{% endgeneration %}"
        "{% endif %}{% endfor %}"
    ),
    # the assistant is called model, no system
    "gemma": (
        "{{ bos_token }}{% for m in messages %}"
        "{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
        "{% if m.role == 'assistant' %}{% generation %}{{ (m.content or '') | trim }}"
        + CALLS
        + "{{ '<end_of_turn>\n' }}"
        "{% endgeneration %}{% else %}{{ m.content | trim + '<end_of_turn>\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
    ),
    # roles as tokens, the end of a text behind the last message alone
    "phi": (
        TOOLS + "{% for m in messages %}{{ '<|' + m.role + '|>' }}"
        "{% if m.role == 'assistant' %}{% generation %}{{ m.content or '' }}" + CALLS + "{{ '<|end|>' }}"
        "{% if loop.last and not add_generation_prompt %}{{ eos_token }}{% endif %}"
        "{% endgeneration %}{% else %}{{ m.content + '<|end|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    ),
    # thoughts of the last turn stay, those of earlier ones are left out
    "thinking": (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
        "{% if m.role == 'assistant' %}{% generation %}"
        "{% if loop.last %}{{ '<think>' + (m.reasoning_content or '') + '</think>' }}{% endif %}"
        "{{ m.content + '<|im_end|>\n' }}{% endgeneration %}"
        "{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
}
SPECIAL = (
    "<|endoftext|>", "<s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>", "<|end|>", "<think>",
    "</think>", "[INST]", "[/INST]",
)  # fmt: skip


def unmarked(template: str) -> str:
    """The same template as most models ship it."""
    return MARKS.sub("", template)


def tokenizer_folder(folder: Path, template: str | None, trimmed: bool = False) -> Path:
    """A byte-level BPE tokenizer of a few hundred tokens, as Hugging Face's library trains one.

    `trimmed`: the places of tokens are told without their white space, as some tokenizers do.
    """
    import tokenizers

    level = tokenizers.pre_tokenizers.ByteLevel
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = level(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    inner.post_processor = tokenizers.processors.ByteLevel(trim_offsets=trimmed)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(SPECIAL), initial_alphabet=level.alphabet(), show_progress=False
    )
    inner.train_from_iterator(["the user says hello, the assistant answers the question\n\n yes no " * 9], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    inner.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": SPECIAL[0]}
    config["bos_token"] = SPECIAL[1]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder
