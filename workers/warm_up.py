"""What a fresh engine answers before it is measured: fixed texts of no traffic set, so no cache is warmed for it."""

from typing import Any

# The second repeats itself, so that a prompt-lookup drafter gets something to draft.
WARM_UP_PROMPTS = (
    "List three things that a gardener does in spring.",
    "Repeat this list twice: red, green, blue, red, green, blue, red, green, blue.",
    "Explain in two sentences why the sky looks blue at noon.",
    "Write one line about a lighthouse.",
)


def warm_up_body(prompt: str, model: str) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 24,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
