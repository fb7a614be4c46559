"""What `results/` holds and the pages made from it: committed pages are what would be made, and bad input is told by its place."""

import re
from pathlib import Path

import pandas as pd
import pytest

from envs.problem.errors import InputError
from orchestration.analysis.load import SweepRecord
from orchestration.analysis.runs import collect
from orchestration.commands.best_known import Known
from orchestration.records import anytime, claims, pages, tables
from orchestration.records.record import COLUMNS, machine, read_record, record
from tests.orchestration.results import small_study

ROOT = Path(__file__).parents[3]
CLAIMS = claims.read_claims(ROOT / "results" / "claims.yaml")
ENTRY = "paper: P\nclaim: c\nplace: Table 1\npublished: '1'\nours: '2'\nbest: '3'\nverdict: holds\ncommand: x\nbasis: 3 seeds\npage: gdp\n"


def entry(tmp_path, text):
    path = tmp_path / "claims.yaml"
    path.write_text("- " + text.replace("\n", "\n  ").rstrip() + "\n", encoding="utf-8")
    return path


def test_pages_are_what_results_make():
    made = pages.make(ROOT)
    assert {page.name for page in made} >= {"RESULTS.md", "demo.md", *(f"{c.page}.md" for c in CLAIMS)}
    assert [page.name for page, text in made.items() if page.read_text(encoding="utf-8") != text] == []  # else: make results


def test_every_paper_has_claims_and_a_command_for_each():
    assert len(CLAIMS) >= 40 and {c.paper for c in CLAIMS} == {"HSDAG", "GiPH", "GDP", "Mars", "DOPPLER"}
    files = [word for c in CLAIMS for word in c.command.split() if word.endswith(".yaml")]
    assert [f for f in files if not (ROOT / f).is_file()] == []
    assert [c.page for c in CLAIMS if not (ROOT / "docs" / "results" / f"{c.page}.md").is_file()] == []


def test_the_first_page_of_results_is_one_screen():
    """The benchmark, and every paper's main claims, whose verdicts lead to where each is told on the paper's page."""
    page = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) <= 36 and max(len(line) for line in rows) <= 160
    assert {c.paper for c in CLAIMS if c.main} == {c.paper for c in CLAIMS}
    for c in CLAIMS:
        own = (ROOT / "docs" / "results" / f"{c.page}.md").read_text(encoding="utf-8")
        assert own.count(f'<a id="claim-{c.number}"></a>') == own.count(f"\n[{c.number}]: #claim-{c.number}\n") == 1
        assert (f"\n[{c.number}]: docs/results/{c.page}.md#claim-{c.number}\n" in page) == c.main == (f"][{c.number}] |" in page)


def test_rows_with_one_seed_or_short_tiers_say_so():
    """A command of a small or medium tier cannot stand behind a row that says nothing of it."""
    silent = [c.number for c in CLAIMS if "-small.yaml" in c.command and not re.search(r"short|not run|1 seed", c.basis)]
    assert silent == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("verdict: holds", "verdict: hold"), "claims.yaml, claim 1: verdict 'hold'; did you mean 'holds'?"),
        (("best: '3'", "best: 3"), "claims.yaml, claim 1: best is 3; write a text, in quotes where it looks like a number"),
        (("basis:", "bases:"), "claims.yaml, claim 1: unknown key 'bases'; did you mean 'basis'?"),
        (("page: gdp", "page: gdp\nmain: 'yes'"), "claims.yaml, claim 1: main is 'yes'; write true, or leave it out"),
        (("place: Table 1\n", ""), "claims.yaml, claim 1: place is missing"),
    ],
)
def test_a_wrong_claim_is_told(change, said, tmp_path):
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        claims.read_claims(entry(tmp_path, ENTRY.replace(*change)))


def test_a_finished_sweep_becomes_a_record_and_a_table(tmp_path):
    study = SweepRecord(tmp_path, "small", collect(small_study()), {})
    path = record(study, tmp_path / "results", commit="abc1234")
    frame = read_record(tmp_path / "results", "small")
    assert path.parent.name == "small" and tuple(frame.columns) == COLUMNS
    assert set(frame["commit"]) == {"abc1234"} and set(frame["machine"]) == {machine()} and set(frame["source"]) == {"simulated"}
    ran = {(r.method, r.seed, float(f"{r.objective:.6g}")) for r in study.collection.runs}
    assert {(r.method, r.seed, r.objective) for r in frame.itertuples()} == ran
    text = pages.fill("a\n<!-- results: leaderboard small -->\nold\n<!-- results: end -->\nb", [], tmp_path, "page.md")
    assert text.startswith("a\n") and text.endswith("-->\nb") and "old" not in text and "abc1234" in text
    assert {m for m in set(frame["method"]) if f"| {m} |" not in text} == set()


def test_curves_are_kept_where_they_are_asked_for(tmp_path):
    study = SweepRecord(tmp_path, "small", collect(small_study()), {})
    path = record(study, tmp_path / "results", "abc1234", with_curves=True)
    text = pages.render("against small m1 m0 at=10,100", [], tmp_path)
    assert "| 10 | +18.2 [+18.2, +18.2] | +18.2 % |" in text and "all (3)" in text and "wrong" not in text
    assert "| **all (3)** | +18.2 [+18.2, +18.2] |" in pages.render("against small m1 m0 at=10 rows=stages", [], tmp_path)
    assert pages.render("against small m1 m0 at=10 rows=problems", [], tmp_path).count("| +18.2 ") == 3
    assert "all (0)" not in pages.render("against small m1 m0 at=10 only=ma", [], tmp_path)
    with pytest.raises(InputError, match=r"at='11'.*known are 1, 2, 5, 10"):
        pages.render("against small m1 m0 at=10,11", [], tmp_path)
    record(study, tmp_path / "results", "abc1234")
    assert not path.with_name("curves.csv").exists()
    with pytest.raises(InputError, match="records FOLDER --curves"):
        pages.render("against small m1 m0 at=10", [], tmp_path)


def test_gaps_are_to_the_archive_where_costs_are_right():
    frame = pd.DataFrame(
        [("a", "g", "n", "m", 0, 2.0, 1.1), ("a", "g", "n", "m", 1, 2.0, 1.1), ("b-wrong", "g", "n", "m", 0, 9.0, 9.0)],
        columns=["stage", "graph", "network", "method", "seed", "1", "2"],
    )
    known = {name: Known(name, "hash", 1.0) for name in ("a/g@n", "b-wrong/g@n")}
    assert "| m | 69.3; 69.3 | 9.5; 9.5 | 1 |" in anytime.gaps(frame, known, "m", "1,2")


def runs(*rows):
    frame = pd.DataFrame(rows, columns=["method", "graph", "seed", "objective"])
    return frame.assign(stage="main", network="n", evaluations=1, unit="s", bound=None, source="simulated", commit="abc1234", machine="m")


def test_figures_of_a_record():
    frame = runs(("slow", "g", 0, 2.0), ("fast", "g", 0, 1.0), ("fast", "g", 1, 1.5), ("slow", "g", 1, 2.0), ("slow", "h", 0, 9.0))
    table = tables.by_graph(frame, against="slow")
    assert "| fast | 37.5 (25.0–50.0) | – |" in table and "seeds 0, 1" in table and "simulated" in table
    assert "| fast | 1250 ± 3.5e+02 | – |" in tables.by_graph(frame)
    stages = tables.by_graph(frame.assign(stage=["a", "a", "b", "b", "b"]))
    assert "| fast, a | 1000 | – |" in stages and "| fast, b | 1500 | – |" in stages
    board = tables.leaderboard(frame)  # h, which fast has not run on, does not count
    assert board.index("| fast | 1.250") < board.index("| slow | 2.000") and "| 2.00 | g | 2 | 1 |" in board
    other = frame.assign(stage="other", objective=100 * frame["objective"])  # the same graph in another objective
    apart = tables.leaderboard(pd.concat([frame, other]), stages="apart")
    assert "| fast | 1.250" in apart and "| 2.00 | g | 2 | 2 |" in apart


def test_how_much_less_a_method_takes_over_all_graphs():
    """Geometric means over graphs that both could run; what failed or is lacking is said."""
    base = [("base", g, 0, t) for g, t in (("g", 1.0), ("h", 4.0))]
    both = [("both", g, seed, t) for seed, by in ((0, 1.0), (1, 0.25)) for g, t in (("g", 1.0 * by), ("h", 1.0 * by))]
    part = [("part", "g", 0, 0.5), ("part", "h", 0, float("inf")), ("twice", "g", 0, 1.0), ("twice", "g", 1, 1.0), ("twice", "h", 0, 8.0)]
    table = tables.below(runs(*base, *both, *part, ("twice", "h", 1, float("inf"))), "base", "part")
    assert "| both | 2 | 75.0 (50.0 to 87.5) | 0.0 (-100.0 to 50.0) |" in table and "| base | 1 | – | -100.0 |" in table
    assert "| part | 1 | 50.0, 1 of 2 graphs | – |" in table and "| twice | 2 | -41.4 (-41.4 to 0.0), 1 failed | -100.0 |" in table
    assert "| h |" in tables.by_graph(runs(*base)) and "h" not in tables.by_graph(runs(*base), only="g").splitlines()[0].split("| g |")[1]
    with pytest.raises(InputError, match="did you mean 'base'"):
        tables.below(runs(*base), "bass")


def test_methods_are_paired_by_seed():
    """Only where both ran; differences that are as often of one sign as of the other are no evidence."""
    base = [("base", "g", seed, 1.0 + seed) for seed in range(10)]
    worse = [("worse", "g", seed, 1.1 * (1.0 + seed)) for seed in range(10)]
    level = [("level", "g", seed, (1.0 + seed) * (1.01 if seed % 2 else 1 / 1.01)) for seed in range(10)]
    same = [("same", "g", seed, 1.0 + seed) for seed in range(9)]
    table = tables.paired(runs(*base, *worse, *level, *same, ("worse", "h", 0, 1.0)), against="base")
    assert "| worse | g | +10.0 [+10.0, +10.0] | 10 of 10 | 0 | 0.006 |" in table  # Wilcoxon's least p of ten pairs, thrice
    assert "| same | g | +0.0 [+0.0, +0.0] | 0 of 9 | 9 | 1.000 |" in table and "| h |" not in table
    row = next(line for line in table.splitlines() if line.startswith("| level | g | "))
    assert "| 5 of 10 | 0 | 1.000 |" in row and "[-" in row
    with pytest.raises(InputError, match="did you mean 'base'"):
        tables.paired(runs(*base), against="bass")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("leaderbord x", "'leaderbord' cannot be made; did you mean 'leaderboard'?"),
        ("claims Marz", "no claim is of paper 'Marz'; did you mean 'Mars'?"),
        ("by-graph nothing", "no record "),
        ("by-graph nothing colour=red", "unexpected keyword argument 'colour'"),
    ],
)
def test_a_wrong_part_is_told(words, said):
    with pytest.raises(InputError, match=re.escape(said)):
        pages.render(words, CLAIMS, ROOT)
