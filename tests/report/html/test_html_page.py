"""The page of a report: well-formed, escaped, self-contained, and every figure has its numbers."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_factory import make_subject, write_lengths

from neuron_llm.report.html.axis import Axis, short
from neuron_llm.report.html.markup import Markup, element
from neuron_llm.report.html.page import render_page
from neuron_llm.report.report_builder import ReportBuilder, ReportQuestion

VOID = {"meta"}


class Tree(HTMLParser):
    """Checks that elements close in order, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: Counter[str] = Counter()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parse(page: str) -> Tree:
    tree = Tree()
    tree.feed(page)
    tree.close()
    assert not tree.open
    return tree


@pytest.fixture
def page(tmp_path: Path) -> str:
    name = tmp_path / "a <b> & 'c'.csv"
    trace = write_lengths(name, *[20] * 9, *[40] * 5, 7, 100, 300, output_tokens=9)
    builder = ReportBuilder(make_subject(tmp_path), None)
    return render_page(builder.build(ReportQuestion(trace=trace, is_simulated=True)))


def test_every_figure_has_title_description_and_table(page: str) -> None:
    tree = parse(page)
    num = tree.counts["figure"]
    assert num == 12
    assert tree.counts["svg"] == tree.counts["desc"] == tree.counts["details"] == num
    assert tree.counts["table"] >= num
    assert len(set(tree.ids)) == len(tree.ids) == 2 * num
    named = [value for name, value in tree.attributes if name == "aria-labelledby"]
    assert {each for value in named for each in value.split()} == set(tree.ids)


def test_the_page_asks_nobody_for_anything(page: str) -> None:
    tree = parse(page)
    assert not tree.counts["script"] and not tree.counts["link"] and not tree.counts["img"]
    assert not {"src", "href", "xlink:href"} & {name for name, _ in tree.attributes}
    assert not re.search(r"https?:|url\(|@import|@font-face", page)


def test_names_are_escaped(page: str) -> None:
    assert "<b>" not in page
    assert any("a <b> & 'c'.csv" in text for text in parse(page).texts)


def test_both_colour_schemes_name_the_same_colours(page: str) -> None:
    light, dark = re.findall(r":root \{(.*?)\}", page, re.DOTALL)
    assert re.findall(r"--(\w+):", light) == re.findall(r"--(\w+):", dark)
    used = set(re.findall(r"var\(--(\w+)\)", page))
    assert used == set(re.findall(r"--(\w+):", light))


def test_no_shape_leaves_its_field(page: str) -> None:
    for name, value in parse(page).attributes:
        if name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "r"):
            assert 0 <= float(value) <= 480, (name, value)


def test_a_report_without_a_workload_has_its_graphs(tmp_path: Path) -> None:
    page = render_page(ReportBuilder(make_subject(tmp_path), None).build(ReportQuestion()))
    tree = parse(page)
    assert tree.counts["figure"] == 0
    assert "decode_b4_c256" in tree.texts


def test_text_is_escaped_and_markup_is_not() -> None:
    inner = element("b", "<&>")
    assert element("p", "a<", inner, title='"') == Markup(
        '<p title="&quot;">a&lt;<b>&lt;&amp;&gt;</b></p>'
    )
    assert element("line", x1=1.5, x2=2.0, class_="a", role=None) == (
        '<line x1="1.5" x2="2" class="a"></line>'
    )


@pytest.mark.parametrize(
    ("maximum", "ticks"),
    [(187, [0, 50, 100, 150]), (0, [0]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (16, [0, 5, 10, 15])],
)
def test_ticks_are_round_numbers_up_to_the_end(maximum: float, ticks: list[float]) -> None:
    assert Axis(maximum, 0, 100).ticks == pytest.approx(ticks)


def test_counts_have_whole_ticks_and_values_stay_in_the_field() -> None:
    axis = Axis(2, 10, 110, is_whole=True)
    assert axis.ticks == [0, 1, 2]
    assert [axis(value) for value in (0, 1, 2, 3)] == [10, 60, 110, 110]
    assert [short(value) for value in (1500, 0.25, 2e6, 0)] == ["1.5k", "0.25", "2M", "0"]
