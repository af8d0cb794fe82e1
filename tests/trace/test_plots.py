"""Pictures and tables for notebooks: what is drawn is what is known."""

import pytest

import heddle
from heddle.errors import HeddleError
from heddle.format import GIB
from heddle.runs.folder import Run
from heddle.trace import Span, Trace
from heddle.trace.plots import MOST_SPANS
from tests.helpers.subjects import measured_trace, write_run

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture(scope="module")
def found():
    return heddle.plan(heddle.job("tiny", cluster="dgx-a100-80gb", nodes=1, global_batch=32), top=3)


def widths(axes):
    return sum(bar.get_width() for bar in axes.patches)


def test_a_trace_is_drawn_span_by_span():
    trace = measured_trace()
    axes = trace.plot()
    assert len(axes.patches) == len(trace.spans)
    assert widths(axes) == pytest.approx(sum(span.end - span.start for span in trace.spans))
    assert trace._repr_html_().startswith("<div")


def test_a_prediction_is_drawn_with_its_memory(found):
    timeline, memory = found.best.plot()
    assert len(timeline.patches) == len(found.best.trace.spans)
    held = sum(float(each.total) for each in found.best.memory) / GIB
    assert widths(memory) == pytest.approx(held)
    assert memory.lines[0].get_xdata()[0] == pytest.approx(found.best.limit / GIB)


def test_a_search_is_drawn_as_its_front(found):
    axes = found.plot()
    assert list(axes.lines[0].get_xdata()) == [point.memory_gib for point in found.front]
    assert list(axes.lines[1].get_ydata()) == [found.best.step_seconds]


def test_a_run_is_drawn_step_by_step(tmp_path):
    run = Run(write_run(tmp_path / "small"))
    loss, *others = run.plot()
    assert len(loss.lines[0].get_xdata()) == 40
    assert len(others) == 3
    assert "40 steps" in run._repr_html_()
    assert list(pytest.importorskip("pandas").DataFrame(run.to_frame())["step"]) == list(range(1, 41))


def test_axes_that_are_given_are_drawn_into(found):
    from matplotlib import pyplot

    axes = pyplot.figure().add_subplot()
    assert measured_trace().plot(axes) is axes


def test_a_trace_that_would_take_minutes_is_refused():
    spans = [Span(0, "compute", "forward", at, at + 1.0) for at in range(MOST_SPANS + 1)]
    with pytest.raises(HeddleError, match="spans"):
        Trace(1, spans).plot()
