"""The command line that measures the quality of a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ngram_trie.baselines.prompt_lookup import PromptLookup
from ngram_trie.bench.live import eos_ids
from ngram_trie.bench.provenance import make_manifest
from ngram_trie.cli.app import one_of, run
from ngram_trie.data import bundled
from ngram_trie.data.bundled import BundledDataset
from ngram_trie.data.prompts import build_prompt
from ngram_trie.data.world import TASKS
from ngram_trie.decoding import SpeculativeDecoder, Stop
from ngram_trie.store.files import PROJECT, content_hash, fingerprint
from ngram_trie.targets.load import load_model, load_tokenizer
from ngram_trie.targets.model import TargetModel

LOCAL = PROJECT / "results" / "local"
#: The names of the sets that ship with the project.
BUNDLED = sorted(file.stem for file in bundled.FOLDER.glob("*.jsonl"))


def main(
    model: Annotated[Path, typer.Argument(help="Folder of the model.")] = bundled.MODEL,
    output: Annotated[Path, typer.Argument(help="Where quality.json goes.")] = LOCAL / "quality",
    tasks: Annotated[
        list[str], typer.Argument(callback=one_of(BUNDLED), help="Bundled sets; default: the text world's.")
    ] = list(TASKS),  # noqa: B006
) -> None:
    """Measure how well a tiny model answers the bundled test prompts (a minute).

    Greedy answers are compared with the references: the share of key facts that the answer contains word for word, the
    share of answers that equal the reference from end to end, and how far the answers copy (prompt lookup's accept
    length). These show what the speedups of this profile are speedups of.

      python -m scripts.studies.tiny.evaluate
      python -m scripts.studies.tiny.evaluate data/tiny/general_model OUTPUT chat code math
    """
    folder = str(model)
    target, tokenizer = TargetModel(load_model(folder)), load_tokenizer(folder)
    decoder = SpeculativeDecoder(target, PromptLookup())
    stop = Stop(256, eos_ids(target.model))
    datasets = {task: BundledDataset(task).questions for task in tasks}
    prompts = {task: [build_prompt(question, tokenizer) for question in part] for task, part in datasets.items()}
    ids = {task: [prompt.ids.tolist() for prompt in part] for task, part in prompts.items()}
    config = {"max_new_tokens": stop.max_new_tokens, "method": "pld"}
    manifest = make_manifest(config, fingerprint(folder), content_hash(ids), target.device)
    quality: dict[str, object] = {}
    for task, questions in datasets.items():
        facts = right_facts = right_answers = tokens = steps = 0
        for question, prompt in zip(questions, prompts[task], strict=True):
            result = decoder.generate(prompt, stop)
            answer = tokenizer.decode(result.output_ids, skip_special_tokens=True)
            facts += len(question.key_facts)
            right_facts += sum(fact in answer for fact in question.key_facts)
            right_answers += answer == question.reference
            tokens += sum(result.accept_lengths)
            steps += len(result.accept_lengths)
        quality[task] = {
            "prompts": len(questions),
            "key_facts_found": round(right_facts / facts, 4),
            "answers_equal_reference": round(right_answers / len(questions), 4),
            "pld_accept_length": round(tokens / steps, 3),
            "mean_answer_tokens": round(tokens / len(questions) + 1, 1),
        }
        print(task, quality[task], flush=True)
    output.mkdir(parents=True, exist_ok=True)
    (output / "quality.json").write_text(json.dumps(quality, indent=1) + "\n", encoding="utf-8")
    manifest.write(output / "manifest.json")


if __name__ == "__main__":
    run(main, "nothing was written")
