"""The end of a comparison: the verdict, the models with their cards, and the page."""

import json
import logging
import shlex
import statistics
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from lws_lightning.compare.card import Card
from lws_lightning.compare.command import Request
from lws_lightning.compare.measured import Measured
from lws_lightning.compare.page import write_page
from lws_lightning.compare.plan import Plan
from lws_lightning.compare.recipe import BEST, PROBE
from lws_lightning.compare.saying import say
from lws_lightning.compare.statistics import Comparison, Sample
from lws_lightning.compare.verdict import Facts, Verdict, judge, sharing_words
from lws_lightning.export import export_task, file_names
from lws_lightning.methods import MultiTaskMethod, method_from_checkpoint
from lws_lightning.records import to_json_value, wilson_interval, write_atomically

__all__ = ["write_results"]

_FORMATS = {"onnx": ".onnx", "pt2": ".pt2"}
_PACKAGES = ("python", "torch", "lightning", "lws_lightning", "lws-lightning")


def write_results(request: Request, plan: Plan, measured: Sequence[Measured]) -> None:
    """Prints the verdict, and writes everything that a comparison leaves.

    Args:
        request: The options.
        plan: The plan.
        measured: The finished runs.
    """
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    by_contender = {
        name: mine for name in plan.contenders if (mine := [each for each in measured if each.contender == name])
    }
    comparison = Comparison({name: _sample(mine) for name, mine in by_contender.items()})
    methods = {name: _best_method(mine) for name, mine in by_contender.items()}
    facts = {name: _facts(mine, methods[name]) for name, mine in by_contender.items()}
    verdict = judge(facts, comparison)
    print()
    for sentence in verdict.sentences:
        say(sentence)
    print()
    write_atomically(request.out / "verdict.json", _as_json(verdict, facts, comparison))
    print("Writing the models ...", flush=True)
    mine = by_contender[verdict.recommended]
    _write_models(request, plan, verdict, mine, methods[verdict.recommended], facts[verdict.recommended])
    snippet = files("lws_lightning.compare").joinpath("standalone/predict.py").read_text(encoding="utf-8")
    write_atomically(request.out / "predict.py", snippet)
    wrong_images = _best(mine).run.folder / "pictures" / "wrong_images.png"
    page = write_page(request.out, plan, verdict, facts, comparison, [each.run for each in measured], wrong_images)
    first = request.out / "models" / f"{file_names(methods[verdict.recommended].task_names)[0]}.onnx"
    print(f"Models:  {request.out / 'models'}, with a card each")
    print(f"Use one: {shlex.join(['python', str(request.out / 'predict.py'), str(first), 'IMAGE.jpg'])}")
    print(f"Report:  {page}")


def _sample(measured: Sequence[Measured]) -> Sample:
    outcomes = [[each.wrong[task] for task in sorted(each.wrong)] for each in measured]
    return Sample(outcomes, seeded=measured[0].contender != PROBE)


def _best_method(measured: Sequence[Measured]) -> MultiTaskMethod:
    return method_from_checkpoint(_checkpoint(_best(measured)), trust_network=True)


def _best(measured: Sequence[Measured]) -> Measured:
    return min(measured, key=lambda each: (each.validation, each.run.seed))


def _checkpoint(measured: Measured) -> Path:
    return measured.run.folder / "checkpoints" / f"{BEST}.ckpt"


def _facts(measured: Sequence[Measured], method: MultiTaskMethod) -> Facts:
    decisions = [each.run.decisions for each in measured if each.run.decisions is not None]
    settled = sum(each.settled for each in decisions)
    words = ""
    if len(method.assignment):
        words = sharing_words(method.assignment.tolist(), method.layer_names, method.task_names)
    return Facts(
        validation=statistics.fmean(each.validation for each in measured),
        parameters=method.network.parameters_in_use(method.assignment),
        sharing=words,
        unsettled=len(decisions) - settled,
        settled=settled,
        falling=statistics.fmean(each.falling for each in measured),
    )


def _write_models(
    request: Request,
    plan: Plan,
    verdict: Verdict,
    measured: Sequence[Measured],
    method: MultiTaskMethod,
    facts: Facts,
) -> None:
    best = _best(measured)
    checkpoint = _checkpoint(best)
    record = method.data_record
    commands = _commands(request, best)
    for index, (task, file) in enumerate(zip(method.task_names, file_names(method.task_names), strict=True)):
        target = request.out / "models" / file
        written = [
            export_task(method, index, format, target.with_name(f"{file}{suffix}"), checkpoint)
            for format, suffix in _FORMATS.items()
        ]
        assert best.run.test is not None
        test = best.run.test.tasks[task]
        others = [each.run.test.tasks[task].error for each in measured if each is not best and each.run.test]
        names = record.class_names[index]
        card = Card(
            task=task,
            file=file,
            method=f"contender {best.contender}, {plan.steps:,} steps, seed {best.run.seed}",
            network=method.network_name,
            sharing=facts.sharing or "see the report",
            parameters=written[0].parameters,
            class_names=None if names is None else list(names),
            num_classes=method.num_classes[index],
            images=(plan.images_of[task][0], plan.images_of[task][1], test.images),
            digest=best.run.data_digest or plan.images,
            preprocessing=record.preprocessing,
            error=test.error,
            interval=wilson_interval(test.error, test.images),
            other_seeds=others,
            chosen=_chosen(verdict, measured, best),
            difference=max(each.difference for each in written),
            commands=commands,
            versions={name: best.run.versions[name] for name in _PACKAGES if name in best.run.versions},
            trained=(best.run.ended or "").removesuffix("+00:00").replace("T", " "),
        )
        write_atomically(target.with_name(f"{file}.md"), card.markdown())


def _chosen(verdict: Verdict, measured: Sequence[Measured], best: Measured) -> list[str]:
    if verdict.recommended == verdict.best:
        how, use = "which had the lowest validation error", "The test images chose nothing."
    else:
        how = (
            f"which has fewer parameters than {verdict.best}, of the lowest validation error, and is at most a point "
            "worse by the whole 95 % interval"
        )
        use = "The test images decided this and nothing else."
    of_runs = f"Of its {len(measured)} runs, this has the lowest" if len(measured) > 1 else "Its only run has a"
    return [
        f"The comparison recommends {verdict.recommended}, {how}.",
        f"{of_runs} validation error ({best.validation:.2f} %, the mean over tasks), at step {best.best.step:,}, where "
        "it was lowest in the run.",
        "The networks of all tasks are from the same run, so that they share what they shared in training.",
        use,
    ]


def _commands(request: Request, best: Measured) -> list[str]:
    config = request.out / "contenders" / f"{best.contender}.yaml"
    again = shlex.join(["lws", "sweep", str(config), "--seeds", str(best.run.seed), "--out", "again"])
    folder = f"again/contenders/{best.contender}/seed{best.run.seed}"
    export = f"lws export --ckpt_path {folder}/checkpoints/{BEST}.ckpt --all_tasks --format onnx"
    return [again, export]


def _as_json(verdict: Verdict, facts: Mapping[str, Facts], comparison: Comparison) -> str:
    values = {
        "recommended": verdict.recommended,
        "lowest_validation_error": verdict.best,
        "sentences": verdict.sentences,
        "contenders": {
            name: {
                "runs": comparison.samples[name].runs,
                "validation_error": each.validation,
                "test_errors": comparison.samples[name].errors,
                "parameters": each.parameters,
                "sharing": each.sharing,
            }
            for name, each in facts.items()
        },
        "better_by": {name: vars(each) for name, each in verdict.differences.items()},
    }
    return json.dumps(to_json_value(values), indent=2, ensure_ascii=False) + "\n"
