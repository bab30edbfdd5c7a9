"""Bad inputs and what the user is told: a row is a command line (or a damaged file) and a pattern of the line."""

from __future__ import annotations

import re
from typing import NamedTuple


class Row(NamedTuple):
    """One bad input.

    Attributes:
        line: overrides of `ngram-trie run`, split at spaces; {traces} and the like are files of `Damaged`.
        says: a pattern that the line must hold.
        loads: whether weights must be loaded before it can be known.
    """

    line: str
    says: str
    loads: bool = False


REPLAY = "engine=replay engine.traces={traces} "
FORCED = "engine=teacher_forced engine.traces={traces} model.weights=random "

#: One for each kind of mistake; numbers of methods are in tests/test_contract.py.
COMMANDS = [
    Row("method=ngram_tri", "method=ngram_tri: did you mean ngram_trie"),
    Row("method=../../x", r"method=\.\./\.\./x: no such name"),
    Row("engine=lvie", "engine=lvie: did you mean live"),
    Row("experiment=table9", "experiment=table9: did you mean table"),
    Row("method", "method: no value"),
    Row("=", "no name|not readable|no value|Could not override"),
    Row("method.n=[1", "not readable"),
    Row("--forse", "--forse: no such option"),
    Row("method.name=../../x", r"method.name=\.\./\.\./x: must"),
    Row("~method.name", "method.name: must be given"),
    Row(REPLAY + "cost._target_=os.system", "os.system"),
    Row("shape=star", "shape=star: must be 'tree' or 'chain'"),
    Row("model.path=null", "model.path: give a GGUF file"),
    Row("model.path=nowhere/at/all", "'nowhere/at/all' cannot be loaded"),
    Row("model.path={empty}", "cannot be loaded: there is no tokenizer.json"),
    Row("model.path={foreign_config}", "cannot be loaded"),
    Row("model.path={broken_gguf}", "gguf"),
    Row("model.path=package:nothing/x.gguf", "package nothing is not installed"),
    Row("model.device=tpu", "model.device=tpu: "),
    Row("model.device=cuda", "model.device=cuda: torch sees no GPU"),
    Row("model.dtype=int8", "model.dtype=int8: must be 'float32'"),
    Row("model.weights=random model.architecture=nowhere", "architecture=nowhere|'nowhere' cannot be loaded"),
    Row("model.context_limit=0", "model.context_limit=0: must be greater than"),
    Row("model.stop_ids=[99999999]", "model.stop_ids=99999999: .*from 0 to 3071"),
    Row("model.chat_template=nowhere", "model.chat_template=nowhere: one of"),
    Row("model.chat_template={template_raises}", "chat template.*no turn for you"),
    Row("model.chat_template={template_huge}", "chat template"),
    Row("model.chat_template={template_escapes}", "chat template"),
    Row("model.chat_template={template_silent}", "the chat template changes the message"),
    Row("model.stop_strings=['']", "empty string"),
    Row("engine.num_threads=-1", "num_threads=-1"),
    Row("+model.foo=1", "model.foo: no such setting"),
    Row("engine.traces=x", "engine live has no such setting"),
    Row("engine=replay", "engine.traces: give a file"),
    Row("engine=replay engine.traces=nowhere.jsonl", "nowhere.jsonl: no such trace file"),
    Row("engine=replay engine.traces={deep}", "deep.jsonl:1: "),
    Row("engine=replay engine.traces={huge_ids}", "huge_ids.jsonl:1: output_token_ids must be"),
    Row(REPLAY + "engine.num_jobs=0", "engine.num_jobs=0"),
    Row(REPLAY + "method.context=article", "context='article'"),
    Row(REPLAY + "grid={{num_draft:[0]}}", "num_draft=0"),
    Row(REPLAY + "engine.parity=both", "engine.parity=both: must be 'odd' or 'even'"),
    Row(REPLAY + "engine.draft_in_prefill=maybe", "engine.draft_in_prefill=maybe: must be a valid boolean"),
    Row(REPLAY + "engine.verify=rows", "no such setting"),
    Row(REPLAY + "method=medusa", "medusa drafts from the model's"),
    Row(FORCED + "engine.categories=[nothing]", "no answers of nothing: it has rag"),
    Row(FORCED + "method=sps", "method sps runs a model of its own, which cannot be forced; use engine=live"),
    Row("engine=teacher_forced engine.traces={beyond} model.weights=random", "engine.traces=.*beyond"),
    Row("budget=auto budget.max_nodes=0", "budget.max_nodes=0"),
    Row(REPLAY + "cost.price=-5", "price=-5"),
    Row(REPLAY + "cost=measured cost.folder=nowhere", "nowhere/curve.json: no cost curve"),
    Row(REPLAY + "cost=measured cost.folder={curve_nan}", "curve.json"),
    Row(REPLAY + "cost=measured cost.folder={curve_half}", "curve.json"),
    Row("output=/proc/nowhere", "/proc/nowhere"),
    Row("output={long_name}", "File name too long|too long"),
    Row("grid={{num_drafts:[4]}}", "did you mean num_draft"),
    Row("noise=3", "noise=3: must be a dictionary"),
    Row("~output", "output: must be given|output is None"),
    Row("dataset.limit=-3", "limit=-3"),
    Row("dataset.limit=${{dataset.limit}}", "Recursive|recursive"),
    Row("dataset=spec_bench dataset.category=nothing", "nothing|SPEC_BENCH|cache"),
    Row("hydra/launcher=jobllib", "hydra/launcher=jobllib: did you mean joblib"),
    Row("method=rest method.datastore=nowhere", "nowhere/header.json: not there"),
    Row("method=rest method.datastore={store_foreign}", "store_foreign: damaged or of another format", True),
    Row("method=rest method.datastore={store_half}", "store_half: damaged or of another format", True),
    Row("method=medusa method.heads={empty}", r"empty/\*.safetensors: not there"),
    Row("engine=replay engine.traces={nothing}", "nothing.jsonl: holds no answers"),
    Row(REPLAY + "engine.categories=[nothing]", "traces.jsonl: no answers of nothing: it has rag"),
    Row("methods={{}}", "methods={}: .*leave it out"),
    Row("method=blend_bigram", "ngram_tables/tiny|answers"),
    Row("method=blend_warm method.answers={deep}", "deep.jsonl:1|answers", True),
    Row("method=ngram_trie_released method.eos_id=99999", "eos_id=99999: .*vocabulary", True),
    Row("method=space method.mask_id=99999999", "mask_id=99999999", True),
    Row("method=token_recycling method.k=5000", "k=5000: must be an integer from 1 to 8"),
    Row("method.ties=wide", "ties='wide': must be one of"),
    Row("method.update_with_output=maybe", "update_with_output='maybe': must be true or false"),
]


def arguments(row: Row, files: dict[str, str]) -> list[str]:
    """The words of the command line."""
    return [word.format(**files) for word in row.line.split()]


def matches(row: Row, line: str) -> bool:
    return line.startswith("error: ") and "\n" not in line and bool(re.search(row.says, line))
