"""Demo traffic written for the project: timed, real-text requests to the service "support-assistant"."""

from pathlib import Path

SUPPORT_ASSISTANT: Path = Path(__file__).with_name("support_assistant.jsonl")
