"""The chart of a running cell."""

from __future__ import annotations

import pytest

from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.sample_row import RowBuilder, SampleRow
from tbmem.notebook.live_chart import LiveChart
from tbmem.notebook.output import Output
from tbmem.runtime.process.guard import Guard
from tests.conftest import GIB, MakeSample
from tests.notebook.conftest import Shell


@pytest.fixture
def chart(shell: Shell) -> LiveChart:
    return LiveChart(Output(shell), lambda: {"cuda:0": 2 * GIB}, Guard())


def rows(make_sample: MakeSample, *levels: float, first: int = 1) -> list[SampleRow]:
    builder = RowBuilder()
    return builder.add([make_sample(step, level) for step, level in enumerate(levels, start=first)])


def finding(kind: FindingKind) -> Finding:
    return Finding(
        kind=kind, severity=Severity.WARNING, device="cuda:0", first_step=1, last_step=2, message=f"a {kind.value}"
    )


def test_one_output_is_drawn_anew(chart: LiveChart, shell: Shell, make_sample: MakeSample) -> None:
    # given a chart that has been shown, and samples that came since
    chart.start()
    chart.write(rows(make_sample, 1.0, 2.0))
    chart.stop()

    # then the second picture replaces the first one, and has the console's line
    (first, _, is_update), (second, text, is_second_update) = shell.shown
    assert (is_update, is_second_update) == (False, True)
    assert ">second</text>" in first  # as long as there is no step
    assert ">step</text>" in second
    assert text == "step 2 · GPU 0 memory · allocated 2.00 GiB · reserved 2.00 GiB · peak 2.00 GiB (2 % of 80)"
    assert text in second


def test_the_same_picture_is_not_sent_again(chart: LiveChart, shell: Shell, make_sample: MakeSample) -> None:
    chart.write(rows(make_sample, 1.0))
    chart.start()

    chart.stop()

    assert len(shell.shown) == 1


def test_findings_are_shown_below(chart: LiveChart, shell: Shell, make_sample: MakeSample) -> None:
    chart.write([finding(FindingKind.SHORT_RUN)])  # of a run without a step
    chart.write([*rows(make_sample, 1.0, 2.0), finding(FindingKind.SPIKE), finding(FindingKind.SUSPECT)])
    chart.start()
    chart.stop()

    html = shell.shown[-1][0]
    assert "<b>SPIKE</b> GPU 0 a spike" in html
    assert "<title>SPIKE in step 2</title>" in html
    assert "a suspect" not in html
    assert "SHORT RUN" not in html
    # until a summary has them
    chart.leave_out_findings()
    chart.stop()
    assert "a spike" not in shell.shown[-1][0]


def test_a_second_run_of_the_cell_begins_anew(chart: LiveChart, shell: Shell, make_sample: MakeSample) -> None:
    chart.write(rows(make_sample, *[5.0] * 30))
    chart.write(rows(make_sample, 1.0, 1.0))
    chart.start()
    chart.stop()

    assert shell.shown[-1][1].startswith("step 2 · ")
    assert "5 GiB" not in shell.shown[-1][0]


def test_a_front_end_that_fails_switches_the_chart_off(make_sample: MakeSample) -> None:
    # given a front end that is gone
    class Gone(Shell):
        def publish(self, *arguments: object, **options: object) -> None:
            raise OSError("the socket is closed")

    guard = Guard()
    chart = LiveChart(Output(Gone()), dict, guard)

    # when it is drawn
    chart.start()
    chart.write(rows(make_sample, 1.0))
    chart.stop()

    # then nothing is raised, and it is said once
    assert guard.problems == ["the notebook's chart is off: OSError: the socket is closed"]
