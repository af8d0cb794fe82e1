"""The job file: what is written is read back, and every mistake is told with the nearest that works."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heddle.errors import HeddleError, divisors
from heddle.spec import (
    Cluster,
    Data,
    Device,
    Job,
    Link,
    ModelSpec,
    Peak,
    Plan,
    RopeScaling,
    Train,
    dumps_job,
    load_job,
)
from heddle.spec.hf.config_write import write_config
from heddle.spec.job import job_from_tables
from heddle.spec.shorthand import cluster_from_table, model_from_table

SMALL: dict[str, Any] = {"layers": 4, "hidden": 32, "heads": 4, "vocab": 257, "sequence": 64}
MODEL = ModelSpec(**SMALL)
TEXT = Data(text="corpus/*.txt")
JOB = """
[model]
layers = 4
hidden = 32
heads = 4
vocab = 257
sequence = 64

[data]
text = "corpus/*.txt"
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Any:
    def write(text: str, name: str = "job.toml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refusal(document: dict[str, Any] | str) -> HeddleError:
    tables = tomllib.loads(document) if isinstance(document, str) else document
    with pytest.raises(HeddleError) as caught:
        job_from_tables(tables)
    return caught.value


# --- Reading and writing ----------------------------------------------------------------------------------


def test_the_smallest_job(job_file: Any) -> None:
    path = job_file(JOB)
    job = load_job(path)
    assert job == Job(model=MODEL, data=Data(text=(str(path.parent / "corpus/*.txt"),)))
    assert job.train == Train()
    assert (job.cluster, job.plan) == (None, None)
    assert (job.sequence, job.tokens_per_step, job.run_folder) == (64, 8 * 64, Path("runs/run"))


def test_a_job_with_everything(job_file: Any) -> None:
    more = """
    [train]
    name = "first"
    runs = "elsewhere"
    sequence = 32
    learning_rate = 1

    [cluster]
    preset = "dgx-a100-80gb"
    nodes = 2

    [plan]
    tensor = 2
    pipeline = 2
    stages = [1, 3]
    recompute = ["none", "selective", "full", "full"]

    [predicted]
    step_seconds = 1.5
    """
    path = job_file(JOB + more)
    job = load_job(str(path))  # a string will do
    assert job.train == Train(name="first", runs="elsewhere", sequence=32, learning_rate=1.0)
    assert type(job.train.learning_rate) is float
    assert (job.sequence, job.tokens_per_step, job.run_folder) == (32, 256, Path("elsewhere/first"))
    assert job.cluster is not None
    assert job.cluster.world == 16
    assert job.plan == Plan(tensor=2, pipeline=2, stages=(1, 3), recompute=("none", "selective", "full", "full"))
    assert load_job(job_file(dumps_job(job), "again.toml")) == job.stating("bf16")


def test_a_precision_that_is_not_named_is_what_the_devices_are_best_at(job_file: Any) -> None:
    job = load_job(job_file(JOB))
    assert (job.precision, job.precision_in_words) == ("fp32", "fp32 (chosen for cpu core)")
    job = load_job(job_file(JOB + '[cluster]\npreset = "dgx-h100"\n'))
    assert (job.precision, job.precision_in_words) == ("bf16", "bf16 (chosen for H100 80GB HBM3)")
    assert job.with_plan(Plan()).precision_in_words == job.precision_in_words
    assert (job.stating().precision_in_words, job.stating("fp16").precision_in_words) == ("bf16", "fp16")
    # on a machine that is best at something else, the file means the same
    assert 'precision = "bf16"' in dumps_job(job)


words = st.text(min_size=1, max_size=6)
positive = st.floats(1e-3, 1e6)
share = st.floats(0, 1)


@st.composite
def models(draw: st.DrawFn) -> ModelSpec:
    kv_heads, group, half = draw(st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 8)))
    low, more = draw(positive), draw(positive)
    scaling = st.builds(RopeScaling, positive, st.just(low), st.just(low + more), st.integers(1, 10_000))
    return ModelSpec(
        name=draw(words),
        layers=draw(st.integers(1, 9)),
        hidden=draw(st.integers(1, 99)),
        heads=kv_heads * group,
        kv_heads=kv_heads,
        head_size=2 * half,
        ffn=kv_heads * draw(st.integers(1, 30)),
        vocab=draw(st.integers(1, 999)),
        sequence=draw(st.integers(8, 99)),
        norm=draw(st.sampled_from(["layernorm", "rmsnorm"])),
        norm_epsilon=draw(st.floats(1e-12, 1e-3)),
        activation=draw(st.sampled_from(["gelu", "swiglu"])),
        positions=draw(st.sampled_from(["learned", "rotary"])),
        rope_theta=draw(positive),
        rope_scaling=draw(st.none() | scaling),
        window=draw(st.none() | st.integers(1, 99)),
        bias=draw(st.sampled_from(["all", "qkv", "none"])),
        qk_norm=draw(st.booleans()),
        tied=draw(st.booleans()),
        dropout=draw(st.floats(0, 0.9)),
    )


peaks = st.builds(Peak, **dict.fromkeys(("fp32", "tf32", "bf16", "fp16", "fp8"), st.none() | positive))
devices = st.builds(Device, name=words, memory_gib=positive, memory_gbs=st.none() | positive, tflops=peaks)
outermost = st.builds(Link, name=words, gbs=positive, latency_us=st.floats(0, 1e3))
clusters = st.builds(
    Cluster,
    name=words,
    nodes=st.integers(1, 9),
    devices=st.integers(1, 9),
    device=devices,
    links=st.builds(
        lambda near, far: (near, far),
        st.builds(Link, name=words, devices=st.just(8), gbs=positive),
        outermost,
    ),
)
sources = st.builds(Data, text=words | st.lists(words, min_size=1).map(tuple), tokenizer=words, key=words) | st.builds(
    Data, tokens=words, validation=st.floats(0, 0.99), cache=words, verify=st.booleans()
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    model = draw(models())
    tensor = draw(st.sampled_from(divisors(model.kv_heads)))
    pipeline = draw(st.integers(1, model.layers))
    data, microbatch, times = draw(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)))
    sequence = tensor * (model.sequence // tensor)
    plan = Plan(
        tensor=tensor,
        sequence=tensor > 1 and draw(st.booleans()),
        pipeline=pipeline,
        data=data,
        microbatch=microbatch,
        zero=draw(st.sampled_from([0, 1])),
        schedule=draw(st.sampled_from(["gpipe", "1f1b"])),
        stages=draw(st.sampled_from([(), (*[1] * (pipeline - 1), model.layers - pipeline + 1)])),
        recompute=draw(st.sampled_from(["none", "selective", ("full",) * model.layers])),
    )
    train = Train(
        name=draw(st.from_regex(r"\A\w[\w. -]{0,5}\Z")),
        runs=draw(words),
        steps=draw(st.integers(1, 10**9)),
        global_batch=data * microbatch * times,
        sequence=draw(st.sampled_from([None, sequence])) if sequence == model.sequence else sequence,
        seed=draw(st.integers(0, 2**63 - 1)),
        precision=draw(st.sampled_from(["fp32", "bf16", "fp16"])),
        learning_rate=draw(positive),
        final_learning_rate=draw(share),
        schedule=draw(st.sampled_from(["cosine", "linear", "wsd", "constant"])),
        beta2=draw(st.floats(0, 0.99)),
        epsilon=draw(st.floats(1e-12, 1e-3)),
        compile=draw(st.booleans()),
    )
    return Job(
        model=model,
        data=draw(sources),
        train=train,
        cluster=draw(st.none() | clusters),
        plan=draw(st.sampled_from([None, plan])),
    )


@given(jobs())
def test_reading_what_was_written_gives_the_same_job(job: Job) -> None:
    read = job_from_tables(tomllib.loads(dumps_job(job)))
    assert replace(read, data=job.data) == job
    # Reading makes the paths of the inputs absolute; from then on they stay what they are.
    assert job_from_tables(tomllib.loads(dumps_job(read)), Path("/elsewhere")) == read


def test_a_path_may_hold_what_is_a_line_break_elsewhere() -> None:
    text = ("/a\x85b", "/c\u2028d")
    job = Job(model=ModelSpec(**SMALL), data=Data(text=text))
    assert job_from_tables(tomllib.loads(dumps_job(job))).data.text == text


def test_inputs_lie_relative_to_the_job_file(job_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = '[data]\ntext = ["a.txt", "/b.txt", "stdlib:json"]\ntokenizer = "tokenizer.json"\ncache = "kept"\n'
    (tmp_path / "jobs").mkdir()
    job_file('[model]\npreset = "tiny"\n' + data, "jobs/job.toml")
    read = load_job("jobs/job.toml").data
    assert read.text == (str(tmp_path / "jobs/a.txt"), "/b.txt", "stdlib:json")
    assert read.tokenizer == str(tmp_path / "jobs/tokenizer.json")
    assert read.cache == "kept"  # what is written lies where the command is run
    assert job_from_tables({"model": SMALL, "data": {"tokens": "t"}}).data.tokens == str(tmp_path / "t")
    assert job_from_tables({"model": SMALL, "data": {"text": "a", "tokenizer": "bpe:500"}}).data.tokenizer == "bpe:500"


# --- Models and clusters by name or file ------------------------------------------------------------------


def test_presets_and_overrides(job_file: Any) -> None:
    job = load_job(job_file('[model]\npreset = "gpt2"\nlayers = 3\nname = "cut"\n[data]\ntokens = "prepared"\n'))
    assert job.model == replace(model_from_table({"preset": "gpt2"}), layers=3, name="cut")
    assert (job.model.hidden, job.model.layers) == (768, 3)
    # What follows from an overridden size follows from the new one.
    assert model_from_table({"preset": "tiny", "hidden": 64}).ffn == 256


def test_config_json_is_found_beside_the_job_file(
    job_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "jobs" / "model"
    folder.mkdir(parents=True)
    spec = replace(MODEL, name="from a file")
    (folder / "config.json").write_text(json.dumps(write_config(spec)))
    path = job_file('[model]\nconfig = "model/config.json"\ndropout = 0.25\n[data]\ntokens = "t"\n', "jobs/job.toml")
    monkeypatch.chdir("/")
    assert load_job(path).model == replace(spec, dropout=0.25)


def test_a_cluster_file_is_found_beside_the_job_file(job_file: Any) -> None:
    mine = Cluster(name="mine", devices=2, device=Device(name="d", memory_gib=8.0), links=(Link(name="l", gbs=1.0),))
    tables = '[cluster]\nname = "mine"\ndevices = 2\ndevice = { name = "d", memory_gib = 8 }\n'
    tables += 'links = [{ name = "l", gbs = 1 }]\n'
    job_file(tables, "mine.toml")
    job = load_job(job_file(JOB + '[cluster]\nfile = "mine.toml"\nnodes = 3\n'))
    assert job.cluster == replace(mine, nodes=3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "There is no file .*config.json"),
        ("{", "config.json is not valid JSON"),
        ("[1]", "config.json is not a JSON object"),
        (b"\xff\xfe", "config.json is not text"),
        ('{"model_type": "bert"}', "model_type = 'bert' is not known"),
    ],
)
def test_a_bad_config_json_is_told(job_file: Any, tmp_path: Path, content: Any, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(HeddleError, match=message) as caught:
        load_job(job_file('[model]\nconfig = "config.json"\n[data]\ntokens = "t"\n'))
    assert caught.value.what.startswith(str(tmp_path / "job.toml"))


@pytest.mark.parametrize(
    ("table", "what", "hint"),
    [
        ({"preset": "gpt2-x"}, "There is no model preset 'gpt2-x'.", "Did you mean 'gpt2-xl'?"),
        ({"preset": "lama-3-8b"}, "There is no model preset 'lama-3-8b'.", "Did you mean 'llama-3-8b'?"),
        ({"preset": "gpt2", "config": "c.json"}, "[model] has both 'preset' and 'config'.", ""),
        ({"preset": 2}, "model.preset = 2 has the wrong type.", ""),
        ({"preset": ["gpt2"]}, "model.preset = ['gpt2'] has the wrong type.", ""),
        ({"config": True}, "model.config = True has the wrong type.", ""),
    ],
)
def test_a_bad_start_of_a_model_is_told(table: dict[str, Any], what: str, hint: str) -> None:
    with pytest.raises(HeddleError) as caught:
        model_from_table(table)
    assert caught.value.what == what
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("table", "what", "hint"),
    [
        ({"preset": "dgx-h10"}, "There is no cluster preset 'dgx-h10'.", "Did you mean 'dgx-h100'?"),
        ({"preset": "h100"}, "There is no cluster preset 'h100'.", "Did you mean 'dgx-h100'?"),
        ({"preset": "thsi"}, "There is no cluster preset 'thsi'.", "Did you mean 'this'?"),
        ({"preset": "this", "file": "c.toml"}, "[cluster] has both 'preset' and 'file'.", ""),
        ({"preset": 2}, "cluster.preset = 2 has the wrong type.", ""),
        ({"file": 3.5}, "cluster.file = 3.5 has the wrong type.", ""),
        ({}, "[cluster] lacks 'device'.", ""),
        ({"device": {"name": "d"}}, "[cluster.device] lacks 'memory_gib'.", ""),
        (
            {"device": {"name": "d", "memory_gb": 1}},
            "[cluster.device] has no key 'memory_gb'.",
            "Did you mean 'memory_g",
        ),
        ({"device": "a100"}, "cluster.device = 'a100' has the wrong type.", ""),
        (
            {"device": {"name": "d", "memory_gib": 1}, "links": [{"name": "l", "gbs": 1}, {"name": "l"}]},
            "[cluster.links[1]] lacks 'gbs'.",
            "",
        ),
    ],
)
def test_a_bad_cluster_is_told(table: dict[str, Any], what: str, hint: str) -> None:
    with pytest.raises(HeddleError) as caught:
        cluster_from_table(table)
    assert caught.value.what == what
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("content", ["cluster = 3\n", "[model]\nlayers = 1\n"])
def test_a_cluster_file_without_a_cluster_is_told(job_file: Any, content: str) -> None:
    job_file(content, "mine.toml")
    with pytest.raises(HeddleError, match=r"mine.toml has no table \[cluster\]"):
        load_job(job_file(JOB + '[cluster]\nfile = "mine.toml"\n'))


# --- Mistakes in the file ---------------------------------------------------------------------------------


def test_a_missing_file_names_those_beside_it(job_file: Any, tmp_path: Path) -> None:
    job_file(JOB, "other.toml")
    with pytest.raises(HeddleError, match=r"There is no file .*job\.toml") as caught:
        load_job(tmp_path / "job.toml")
    assert caught.value.hint == f"TOML files there: {tmp_path / 'other.toml'}."


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(HeddleError, match="There is no file") as caught:
        load_job(tmp_path / "nowhere" / "job.toml")
    assert caught.value.hint == f"Is the folder {tmp_path / 'nowhere'} right?"


def test_a_file_for_a_folder_is_told(job_file: Any) -> None:
    with pytest.raises(HeddleError, match="There is no file"):
        load_job(job_file(JOB) / "job.toml")


def test_a_folder_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(HeddleError, match="is a folder"):
        load_job(tmp_path)


@pytest.mark.parametrize("text", ["[model", "[model]\nname = gpt2\n", "[model]\nlayers = 1\nlayers = 2\n"])
def test_bad_toml_is_told_with_its_place(job_file: Any, text: str) -> None:
    with pytest.raises(HeddleError, match=r"job.toml is not valid TOML") as caught:
        load_job(job_file(text))
    assert re.search("line|end of document", caught.value.why)


def test_a_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(b'[model]\nname = "\xff"\n')
    with pytest.raises(HeddleError, match=r"job.toml is not text"):
        load_job(tmp_path / "job.toml")


def test_mistakes_name_the_file(job_file: Any) -> None:
    path = job_file(JOB + "[trian]\n")
    with pytest.raises(HeddleError) as caught:
        load_job(path)
    assert caught.value.what == f"{path}: There is no table [trian]."


@pytest.mark.parametrize(
    ("addition", "what", "hint"),
    [
        ("[trian]\n", "There is no table [trian].", "Did you mean 'train'?"),
        (
            "[optimizer]\n",
            "There is no table [optimizer].",
            "Known: cluster, data, model, network, plan, predicted, preference, train, tune.",
        ),
        ("[train]\nstep = 3\n", "[train] has no key 'step'.", "Did you mean 'steps'?"),
        (
            "[train]\nlearningrate = 3\n",
            "[train] has no key 'learningrate'.",
            "Did you mean 'learning_rate'?",
        ),
        ("[plan]\ntensor_parallel = 2\n", "[plan] has no key 'tensor_parallel'.", "Known: adapt, check_step,"),
    ],
)
def test_unknown_words_are_told_the_nearest(addition: str, what: str, hint: str) -> None:
    error = refusal(JOB + addition)
    assert error.what == what
    assert error.hint.startswith(hint)


@pytest.mark.parametrize(
    ("addition", "what", "why"),
    [
        ("[train]\nsteps = 1.5\n", "train.steps = 1.5 has the wrong type.", "It must be a whole number."),
        ("[train]\nsteps = true\n", "train.steps = True has the wrong type.", "It must be a whole number."),
        ("[train]\nclip = true\n", "train.clip = True has the wrong type.", "It must be a number."),
        ("[train]\nclip = 'no'\n", "train.clip = 'no' has the wrong type.", "It must be a number."),
        ("[train]\nname = 3\n", "train.name = 3 has the wrong type.", "It must be a string."),
        ("[train]\ncompile = 1\n", "train.compile = 1 has the wrong type.", "It must be true or false."),
        (
            "[train]\nsequence = '64'\n",
            "train.sequence = '64' has the wrong type.",
            "It must be a whole number.",
        ),
        ("[plan]\nstages = 4\n", "plan.stages = 4 has the wrong type.", "It must be a list."),
        (
            "[plan]\nstages = [1, '3']\n",
            "plan.stages[1] = '3' has the wrong type.",
            "It must be a whole number.",
        ),
    ],
)
def test_wrong_types_are_told(addition: str, what: str, why: str) -> None:
    error = refusal(JOB + addition)
    assert (error.what, error.why) == (what, why)


@pytest.mark.parametrize(
    ("word", "offered"),
    [("optimizer", "optimizer:host"), ("optimiser:disk", "optimizer:disk"), ("everything", "input:host")],
)
def test_one_word_for_a_list_is_offered_a_list_that_can_be_read(word: str, offered: str) -> None:
    error = refusal(JOB + f"[plan]\noffload = '{word}'\n")
    assert error.hint == f'For example offload = ["{offered}"].'
    recompute = "full" if offered.startswith("input") else "none"
    read = job_from_tables(tomllib.loads(JOB + f"[plan]\nrecompute = '{recompute}'\n{error.hint[12:-1]}\n"))
    assert read.plan is not None
    assert read.plan.offload == (offered,)


@pytest.mark.parametrize(
    ("addition", "what", "hint"),
    [
        ("[train]\nprecision = 'bf61'\n", "train.precision = 'bf61' is not known.", "Did you mean 'bf16'?"),
        ("[train]\noptimizer = 'sgd'\n", "train.optimizer = 'sgd' is not known.", "Known: adamw, adamw8bit, muon."),
        (
            "[plan]\nschedule = 'interleave'\n",
            "There is no schedule 'interleave'.",
            "Did you mean 'interleaved'?",
        ),
        ("[plan]\nzero = 4\n", "plan.zero = 4 is not known.", "Known: 0, 1, 2, 3."),
        ("[plan]\nzero = true\n", "plan.zero = True is not known.", "Known: 0, 1, 2, 3."),
        ("[plan]\nzero = 1.0\n", "plan.zero = 1.0 is not known.", ""),
        (
            "[plan]\nrecompute = 'slective'\n",
            "plan.recompute = 'slective' is not known.",
            "Did you mean 'selective'?",
        ),
        (
            "[plan]\nrecompute = ['full', 'fall']\n",
            "plan.recompute[1] = 'fall' is not known.",
            "Did you mean 'full'?",
        ),
    ],
)
def test_unknown_choices_are_told_the_nearest(addition: str, what: str, hint: str) -> None:
    error = refusal(JOB + addition)
    assert error.what == what
    assert error.hint.startswith(hint)


def test_text_is_one_string_or_several() -> None:
    assert job_from_tables({"model": SMALL, "data": {"text": "/a"}}).data.text == ("/a",)
    assert job_from_tables({"model": SMALL, "data": {"text": ["/a", "/b"]}}).data.text == ("/a", "/b")
    assert refusal({"model": SMALL, "data": {"text": 3}}).what == "data.text = 3 has the wrong type."
    assert refusal({"model": SMALL, "data": {"text": ["a", 3]}}).what == "data.text[1] = 3 has the wrong type."


def test_a_model_is_needed() -> None:
    assert refusal({"data": {"text": "a"}}).what == "The table [model] is missing."


def test_data_is_needed_to_train_only() -> None:
    job = job_from_tables({"model": SMALL})
    assert job.data is None
    assert "[data]" not in dumps_job(job)
    with pytest.raises(HeddleError, match=re.escape("The job has no [data]")):
        job.corpus  # noqa: B018


@pytest.mark.parametrize("table", ["model", "data", "train", "cluster", "plan", "predicted"])
@pytest.mark.parametrize("value", [3, "gpt2", [{"layers": 1}]])
def test_a_table_is_a_table(table: str, value: Any) -> None:
    error = refusal({"model": SMALL, "data": {"text": "a"}} | {table: value})
    assert error.what == f"'{table}' is not a table."


def test_what_is_missing_is_listed() -> None:
    error = refusal({"model": {"layers": 1, "heads": 1}, "data": {"text": "a"}})
    assert (error.what, error.why) == ("[model] lacks 'hidden'.", "Needed: hidden, vocab, sequence.")


# --- Values that contradict each other --------------------------------------------------------------------


@pytest.mark.parametrize("data", [{}, {"text": "a", "tokens": "b"}, {"text": []}, {"text": ""}])
def test_data_is_text_or_tokens(data: dict[str, Any]) -> None:
    assert refusal({"model": SMALL, "data": data}).what == "[data] needs one of 'text', 'chat' and 'tokens'."


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden"])
def test_a_run_has_a_name_for_a_folder(name: str) -> None:
    with pytest.raises(HeddleError, match=re.escape(f"train.name = {name!r} is not a name for a folder")):
        Train(name=name)


def test_zero_switches_off() -> None:
    off = Train(warmup=0, eval_every=0, eval_batches=0, save_every=0, clip=0.0, weight_decay=0.0, learning_rate=0.0)
    assert off.clip == 0.0


def test_the_sequence_fits_the_model_and_either_way_out_works() -> None:
    with pytest.raises(HeddleError, match=r"train.sequence = 65 is longer than the model's 64 positions") as caught:
        Job(model=MODEL, data=TEXT, train=Train(sequence=65))
    assert caught.value.hint == "Use train.sequence = 64, or model.sequence = 65."
    assert Job(model=MODEL, data=TEXT, train=Train(sequence=64)).sequence == 64
    assert Job(model=replace(MODEL, sequence=65), data=TEXT, train=Train(sequence=65)).sequence == 65


def test_a_plan_that_does_not_fit_the_job_is_refused() -> None:
    with pytest.raises(HeddleError, match="4 heads cannot be split over tensor = 3"):
        Job(model=MODEL, data=TEXT, plan=Plan(tensor=3))
    with pytest.raises(HeddleError, match="global_batch = 8 is not divisible"):
        Job(model=MODEL, data=TEXT, plan=Plan(data=3))
    # The plan is checked against the tokens of a sample, not the model's longest.
    with pytest.raises(HeddleError, match="A sequence of 30 tokens cannot be split over tensor = 4"):
        Job(model=MODEL, data=TEXT, train=Train(sequence=30), plan=Plan(tensor=4, sequence=True))


@pytest.mark.parametrize("name", [" ", "a\\nb", "\\u001b[31mred", "a" * 201, "ä" * 101])
def test_a_name_that_cannot_be_seen_is_not_one(job_file: Any, name: str) -> None:
    with pytest.raises(HeddleError, match="is not a name for a folder"):
        load_job(job_file(JOB + f'[train]\nname = "{name}"\n'))


def test_a_prediction_without_a_plan_is_about_nothing(job_file: Any) -> None:
    with pytest.raises(HeddleError, match=r"\[predicted\], but no \[plan\]"):
        load_job(job_file(JOB + "[predicted]\nstep_seconds = 1.0\n"))
