"""Suspicions and evidence as they come from real loops: what is concluded, and in which words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tbmem.analysis.diagnosis.leak_cause import explain, working_sets
from tbmem.model.evidence import (
    Channel,
    CodeLine,
    Conclusion,
    Contents,
    Evidence,
    Holder,
    HolderKind,
    LineSource,
    Outcome,
    Site,
    Suspicion,
)
from tbmem.units import KIB, MIB
from tests.model.test_evidence import make_suspicion

APPEND = CodeLine(file="src/train.py", line=57, function="train", text="history.append(loss)")
FORWARD = CodeLine(file="src/model.py", line=12, function="Net.forward", text="y = x.tanh()")
GROWTH = make_suspicion(10, 42, 64.0 * KIB)

LIST = Holder(
    kind=HolderKind.LIST,
    name="list 'history' in train()",
    lines=(APPEND,),
    known_by=LineSource.SEEN,
    length=1204,
    per_step=1.0,
    contents=Contents.GRAPHS,
    bytes_per_element=60 * KIB,
)
DEQUE = replace(
    LIST, kind=HolderKind.DEQUE, name="deque 'buffer' in train()", length=25, bound=40, contents=Contents.TENSORS
)
CACHE = replace(DEQUE, kind=HolderKind.LRU_CACHE, name="lru_cache of mask_for()", bound=128, hits=0)
SURVIVORS = Site(stack=(FORWARD,), operator="aten::tanh", generations=6, steps=6, bytes_per_step=60.0 * KIB)
BUSY = replace(SURVIVORS, generations=1)


def concluded(
    *holders: Holder,
    sites: tuple[Site, ...] | None = (),
    sizes_grow: float = 0.0,
    suspicion: Suspicion = GROWTH,
    collector_on: bool = True,
    room: int | None = None,
    allocated_growth: float | None = None,
    looked_before: int = 0,
    history_bytes: int = 0,
    search_seconds: float = 0.0,
    working_sets: tuple[str, ...] = (),
) -> Conclusion:
    evidence = Evidence(
        first_step=42,
        last_step=49,
        holders=holders,
        sites=sites,
        sizes_grow=sizes_grow,
        collector_on=collector_on,
        history_bytes=history_bytes,
        search_seconds=search_seconds,
    )
    return explain(
        suspicion,
        evidence,
        min_rate=KIB,
        room=room,
        allocated_growth=allocated_growth,
        looked_before=looked_before,
        working_sets=working_sets,
    )


def test_a_list_without_an_end_is_a_leak() -> None:
    # when
    conclusion = concluded(LIST, sites=(SURVIVORS,))
    # then
    assert conclusion.outcome is Outcome.CONFIRMED
    assert conclusion.reason == (
        "held by list 'history' in train() at train.py:57  history.append(loss)"
        " · 1 204 tensors as of step 49, each keeps its graph (60.00 KiB each)"
    )
    assert conclusion.cause == "an output kept with its graph"
    assert conclusion.advice == "keep it without its graph: .detach() or .item()"
    assert conclusion.share == pytest.approx(60 / 64)
    assert conclusion.evidence["line"]["text"] == "history.append(loss)"
    assert conclusion.evidence["holder"] == "list 'history' in train()"
    assert conclusion.evidence["site"]["generations"] == 6
    assert json.loads(json.dumps(conclusion.evidence)) == conclusion.evidence


def test_two_lists_that_grow_alike_are_both_named() -> None:
    # given
    targets = replace(LIST, name="list 'targets' in train()", bytes_per_element=50 * KIB)
    # when
    conclusion = concluded(LIST, targets)
    # then
    assert "and by list 'targets' in train()" in conclusion.reason
    assert conclusion.share == 1.0


def test_a_bounded_container_will_stop() -> None:
    # when
    conclusion = concluded(DEQUE, sites=(SURVIVORS,))
    # then
    assert conclusion.outcome is Outcome.DISMISSED
    assert (conclusion.ends_at, conclusion.room) == (49 + 15, 15 * 60 * 1024)
    assert "25 of 40 as of step 49, full by about step 64, at 2.34 MiB" in conclusion.reason


@pytest.mark.parametrize(("size", "outcome"), [(20 * KIB, Outcome.DISMISSED), (90 * KIB, Outcome.CONFIRMED)])
def test_a_tensor_that_grows_by_less_than_a_buffer_is_made_of_what_it_holds(size: int, outcome: Outcome) -> None:
    # given: batch = torch.cat([buffer[i] for i in range(0, len(buffer), 8)]), of a buffer that fills
    batch = replace(
        LIST, kind=HolderKind.TENSOR, name="'batch' in train()", bytes_per_element=1, per_step=float(size), length=size
    )
    # when / then
    assert concluded(batch, DEQUE).outcome is outcome


def test_a_bound_that_does_not_fit_into_memory_is_none() -> None:
    assert concluded(replace(DEQUE, bound=1_000_000), room=10 * MIB).outcome is Outcome.CONFIRMED


def test_a_cache_that_never_answers_is_a_leak_even_when_it_is_full() -> None:
    # when
    conclusion = concluded(CACHE)
    # then
    assert conclusion.outcome is Outcome.CONFIRMED
    assert conclusion.lasting
    assert conclusion.ends_at == 49 + 103
    assert "never hit, bounded at 128" in conclusion.reason
    assert concluded(replace(CACHE, hits=3)).outcome is Outcome.DISMISSED


@pytest.mark.parametrize("kind", [HolderKind.GARBAGE, HolderKind.CONTEXT])
def test_cycles_wait_for_the_collector_unless_it_is_off(kind: HolderKind) -> None:
    # given
    cycle = replace(LIST, kind=kind, name="ctx.y of F")
    # then
    assert concluded(cycle, sites=(SURVIVORS,)).outcome is Outcome.OPEN
    assert concluded(cycle, collector_on=False).outcome is Outcome.CONFIRMED


def test_a_graph_of_a_gradient_is_not_for_the_collector() -> None:
    cycle = replace(LIST, kind=HolderKind.CONTEXT, type="create_graph")
    assert concluded(cycle).outcome is Outcome.CONFIRMED


def test_survivors_without_a_holder_are_a_leak_with_the_line_that_allocates() -> None:
    # when
    conclusion = concluded(sites=(replace(SURVIVORS, stack=()), SURVIVORS))
    # then
    assert conclusion.outcome is Outcome.CONFIRMED
    assert "allocated at model.py:12  y = x.tanh()" in conclusion.reason
    assert conclusion.evidence["holder"] is None
    assert conclusion.evidence["line"]["text"] == "y = x.tanh()"


def test_a_curriculum_keeps_nothing_but_the_last_step() -> None:
    # when
    conclusion = concluded(sites=(BUSY,), sizes_grow=0.9)
    # then
    assert conclusion.outcome is Outcome.DISMISSED
    assert "the steps need more memory" in conclusion.reason


def test_a_list_that_keeps_nothing_from_step_to_step_is_a_working_set() -> None:
    # given a list that is longer in each step, filled anew
    refilled = replace(LIST, is_emptied=True)
    # when
    conclusion = concluded(refilled)
    # then
    assert conclusion.outcome is Outcome.DISMISSED
    assert "list 'history' in train() at train.py:57  history.append(loss) keeps nothing from step" in conclusion.reason
    assert concluded(refilled, replace(LIST, name="list 'kept'")).outcome is Outcome.CONFIRMED


def test_a_graph_that_gains_far_more_than_memory_grows_by_is_let_go_again() -> None:
    # given the state of an episode in steps of 241 KiB, while longer episodes add 5 KiB a step
    state = replace(
        LIST, kind=HolderKind.GRAPH, name="tensor h_out[0] in main()", length=803, bytes_per_element=241 * KIB
    )
    longer = replace(GROWTH, level=32 * 5 * KIB, bytes_per_step=5.0 * KIB)
    # when
    conclusion = concluded(state, suspicion=longer)
    # then
    assert conclusion.outcome is Outcome.DISMISSED
    assert "tensor h_out[0] in main() at train.py:57" in conclusion.reason
    assert "carries a graph for some steps and lets it go" in conclusion.reason
    # but one that gains what memory grows by is a leak, also where it grows in every fourth step
    assert concluded(state, suspicion=replace(GROWTH, bytes_per_step=60.0 * KIB)).outcome is Outcome.CONFIRMED


def test_a_graph_that_is_younger_than_the_growth_is_let_go_again() -> None:
    # given growth for 960 steps, and a graph of 2,803 nodes that gains 91 of them in a step
    state = replace(LIST, kind=HolderKind.GRAPH, length=2803, per_step=91.0, bytes_per_element=3703)
    old = replace(GROWTH, channel=Channel.HOST, first_step=13, bytes_per_step=24.5 * KIB)
    evidence = Evidence(first_step=945, last_step=979, holders=(state,), sites=None)
    # when
    conclusion = explain(old, evidence, min_rate=KIB)
    # then
    assert conclusion.outcome is Outcome.DISMISSED
    assert "carries a graph for some steps and lets it go" in conclusion.reason
    assert list(working_sets(old, evidence)) == [state.name]
    # but of one that is too long to be followed it is not known, and one as old as the growth is a leak
    for grown in (replace(state, is_whole=False), replace(state, length=88_000)):
        assert explain(old, replace(evidence, holders=(grown,)), min_rate=KIB).outcome is Outcome.CONFIRMED


def test_what_was_seen_to_let_go_is_a_working_set_from_then_on() -> None:
    assert concluded(LIST).outcome is Outcome.CONFIRMED
    assert concluded(LIST, working_sets=(LIST.name,)).outcome is Outcome.DISMISSED


@pytest.mark.parametrize(
    ("holders", "sites"),
    [
        ((), None),
        ((), ()),
        ((replace(LIST, bytes_per_element=32),), ()),
    ],
    ids=["births unseen", "outside of torch", "too small a part"],
)
def test_what_names_no_cause_leaves_it_open(holders: tuple[Holder, ...], sites: tuple[Site, ...] | None) -> None:
    assert concluded(*holders, sites=sites).outcome is Outcome.OPEN


def test_a_list_of_numbers_is_too_little_to_matter() -> None:
    # given: a list of floats, and growth of as little
    floats = replace(LIST, contents=Contents.OBJECTS, bytes_per_element=32)
    slow = replace(GROWTH, level=32 * 40, bytes_per_step=40.0)
    # then
    assert concluded(floats, suspicion=slow).outcome is Outcome.OPEN


def test_what_nothing_in_sight_holds_is_a_leak_when_it_was_looked_for_twice() -> None:
    # when
    conclusion = concluded(looked_before=1)
    # then
    assert conclusion.outcome is Outcome.CONFIRMED
    assert conclusion.cause == "memory outside of torch"
    # but not where births could not be watched, and not what the collector will free
    unseen = concluded(sites=None, looked_before=1)
    assert (unseen.outcome, unseen.lacks_survivors, conclusion.lacks_survivors) == (Outcome.OPEN, True, False)
    cycle = replace(LIST, kind=HolderKind.GARBAGE)
    assert concluded(cycle, looked_before=1).outcome is Outcome.OPEN


def test_what_grows_too_rarely_to_be_seen_is_told_so() -> None:
    # given growth in one of 100 steps
    rare = concluded(sites=None, suspicion=replace(GROWTH, gap=100))
    # then nobody is sent to look for C extensions
    assert rare.outcome is Outcome.OPEN
    assert rare.reason == "memory grows in one of about 100 steps, too few of them among the 7 that were watched"
    assert "evidence.steps=600" in rare.advice
    # with enough of them the holder is out of sight
    assert "C extension" in concluded(sites=None, suspicion=replace(GROWTH, gap=2)).advice


def test_a_heap_that_is_too_large_for_the_search_is_told_with_the_time_it_takes() -> None:
    # given a heap in which three passes take 2.7 s, and growth in every second step
    conclusion = concluded(sites=None, suspicion=replace(GROWTH, gap=2), search_seconds=2.7)
    # then nobody is sent to look for rare steps
    assert conclusion.outcome is Outcome.OPEN
    assert conclusion.reason == "the search for holders was cut short: in this heap it takes 3 s of a processor"
    assert conclusion.advice == "let it take longer, by evidence.max_seconds=6"


def test_a_librarys_own_records_are_no_leak_out_of_sight() -> None:
    # given: what torch keeps of collectives, 1 KiB in each step of DDP until there are 2,000 of them
    records = replace(GROWTH, first_step=1, last_step=1201, level=1200 * KIB, bytes_per_step=1.0 * KIB)
    # then
    assert concluded(suspicion=records, looked_before=3).outcome is Outcome.OPEN


def test_what_explains_too_little_is_told_to_grow_along() -> None:
    # given a list whose elements hold more than Python can see, as handlers with an io.StringIO do
    small = replace(LIST, contents=Contents.OBJECTS, bytes_per_element=10 * KIB)
    # when
    conclusion = concluded(small)
    # then: it is not the holder, but its line is a place to begin at
    assert conclusion.outcome is Outcome.OPEN
    assert conclusion.reason.endswith(
        "list 'history' in train() at train.py:57  history.append(loss) grows along and explains 16 %"
        " · 1 204 objects as of step 49 (10.00 KiB each)"
    )
    assert conclusion.evidence["holder"] is conclusion.evidence["line"] is None
    assert [line["line"] for line in conclusion.evidence["lines"]] == [57]
    # but next to nothing is not worth a word
    assert "grows along" not in concluded(replace(small, bytes_per_element=KIB)).reason


def test_torchs_memory_history_fills_its_buffer_and_is_no_leak() -> None:
    # given
    of_the_host = replace(GROWTH, channel=Channel.HOST)
    # when
    conclusion = concluded(suspicion=of_the_host, looked_before=1, history_bytes=10 * MIB)
    # then it has 8 MiB to go, 128 steps of 64 KiB
    assert (conclusion.outcome, conclusion.room, conclusion.ends_at) == (Outcome.DISMISSED, 8 * MIB, 49 + 128)
    assert "torch's memory history" in conclusion.reason
    # but it explains nothing on a device, no more than it can hold, and nothing that a list holds
    assert concluded(suspicion=GROWTH, looked_before=1, history_bytes=10 * MIB).outcome is Outcome.CONFIRMED
    assert concluded(suspicion=of_the_host, looked_before=1, history_bytes=MIB).outcome is Outcome.CONFIRMED
    assert concluded(LIST, suspicion=of_the_host, history_bytes=10 * MIB).outcome is Outcome.CONFIRMED


def test_plain_objects_that_grow_along_are_not_the_holder() -> None:
    # given: a thread for each batch; its waiters are plain and small, the batches survive
    waiters = replace(LIST, name="deque done._cond._waiters in make()", contents=Contents.OBJECTS, bytes_per_element=80)
    nameless = replace(LIST, name="list without a name", lines=(), bytes_per_element=20 * KIB)
    # when
    conclusion = concluded(nameless, waiters, sites=(SURVIVORS,))
    # then
    assert conclusion.evidence["holder"] is None
    assert "grows along with it: deque done._cond._waiters in make() at train.py:57" in conclusion.reason
    assert [line["text"] for line in conclusion.evidence["lines"]] == ["y = x.tanh()", "history.append(loss)"]


def test_what_python_adds_to_tensors_on_a_device_is_no_leak_of_the_host_by_itself() -> None:
    # given: the holder counts the tensors' bytes on the device, the host grows by less than a leak
    on_the_host = replace(GROWTH, device="cuda:0", channel=Channel.HEAP, bytes_per_step=KIB - 1)
    # when / then
    assert concluded(LIST, suspicion=on_the_host).outcome is Outcome.OPEN
    assert concluded(LIST, suspicion=replace(on_the_host, bytes_per_step=KIB)).outcome is Outcome.CONFIRMED


@pytest.mark.parametrize(
    ("allocated_growth", "expected"), [(0.0, Outcome.OPEN), (LIST.bytes_per_step * 40, Outcome.CONFIRMED)]
)
def test_tensors_on_a_device_whose_memory_stands_still_are_let_go_again(
    allocated_growth: float, expected: Outcome
) -> None:
    # given: a list that an epoch's end empties gains 64 KiB in each step, the host 1 KiB, and the device nothing
    on_the_host = replace(GROWTH, device="cuda:0", channel=Channel.HEAP, bytes_per_step=KIB, judged_steps=40)
    # when
    conclusion = concluded(LIST, sites=(SURVIVORS,), suspicion=on_the_host, allocated_growth=allocated_growth)
    # then
    assert conclusion.outcome is expected
