"""Every tenth recorded answer, scored as in `bench/replay.py`.

The sample is small, so the minimum scores are a little lower than for all answers.
"""

from __future__ import annotations

from statistics import mean

from bench.replay import list_models, read_answers, score_answers

from tests.support import get_corpus_folder

EVERY = 10


def test_recorded_answers_sample_reaches_minimum_scores() -> None:
    calls: list[float] = []
    relevance: list[float] = []
    for model in list_models(get_corpus_folder()):
        rows = read_answers(get_corpus_folder(), model)[::EVERY]
        scores, different = score_answers(rows, stream=True, trusts=["lenient"])
        assert not different, f"{model}: answers differ when parsed in chunks"
        assert scores["lenient"][0] >= scores["official"][0] - 0.02, model
        calls.append(scores["lenient"][0])
        relevance.append(scores["lenient"][1])
    assert mean(calls) >= 0.79
    assert mean(relevance) >= 0.60
