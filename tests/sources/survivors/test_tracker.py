from __future__ import annotations

from tbmem.model.evidence import CodeLine, Site
from tbmem.sources.survivors.frame_lines import Frame
from tbmem.sources.survivors.tracker import MOST_SITES, AllocationSite, AllocationSites, RecurringSizes, Survivor, rises

KIB = 1024


def _site(line: int, operator: str = "aten::mm") -> AllocationSite:
    return AllocationSite((Frame("/train.py", line, "step"),), operator)


def _line(frame: Frame) -> CodeLine:
    return CodeLine(file=frame.file, line=frame.line, function=frame.function)


def _stack(line: int) -> tuple[CodeLine, ...]:
    return (CodeLine(file="/train.py", line=line, function="step"),)


def _sites(sites: AllocationSites) -> tuple[Site, ...]:
    return sites.report(_line)


def test_a_leak_keeps_a_block_of_every_earlier_step() -> None:
    # given a list that a tensor of 4 KiB is appended to in each of five steps
    sites = AllocationSites()
    for step in range(5):
        sites.step({0x1000 + step: Survivor(4 * KIB, _site(7))})

    # when
    (site,) = _sites(sites)

    # then the last step is left out: what was born in it has had no time to die
    assert site == Site(stack=_stack(7), operator="aten::mm", generations=4, steps=4, bytes_per_step=4 * KIB)
    assert site.share == 1


def test_what_is_replaced_in_every_step_survives_in_none() -> None:
    # given a name that is bound to another tensor in each step
    sites = AllocationSites()
    for step in range(5):
        sites.free(0x1000 + step - 1)
        sites.step({0x1000 + step: Survivor(4 * KIB, _site(7))})

    # then
    assert _sites(sites) == ()


def test_a_queue_keeps_only_the_last_generations() -> None:
    # given a queue of three
    sites = AllocationSites()
    for step in range(9):
        sites.free(0x1000 + step - 3)
        sites.step({0x1000 + step: Survivor(KIB, _site(7))})

    # then
    (site,) = _sites(sites)
    assert (site.generations, site.steps) == (2, 8)


def test_an_address_that_is_used_again_is_another_birth() -> None:
    # given three steps that all use the same address
    sites = AllocationSites()
    for _ in range(3):
        sites.step({0x1000: Survivor(KIB, _site(7))})

    # then only the last birth is alive, and that has had no time to die
    assert _sites(sites) == ()


def test_a_tensor_that_is_replaced_by_a_larger_one_grows_without_generations() -> None:
    # given a torch.cat in each step
    sites = AllocationSites()
    for step in range(5):
        sites.free(0x1000 + step - 1)
        sites.step({0x1000 + step: Survivor(KIB * (step + 1), _site(7))})

    # then
    (site,) = _sites(sites)
    assert site.growing
    assert site.generations == 0
    assert sites.largest_growing() == [KIB * (step + 1) for step in range(5)]


def test_most_generations_come_first_then_most_bytes() -> None:
    # given a buffer that is allocated once, and two leaks
    sites = AllocationSites()
    for step in range(4):
        births = {0x1000 + step: Survivor(KIB, _site(1)), 0x2000 + step: Survivor(2 * KIB, _site(2))}
        if step == 0:
            births[0x3000] = Survivor(900 * KIB, _site(3))
        sites.step(births)

    # then
    assert [site.stack for site in _sites(sites)] == [_stack(2), _stack(1), _stack(3)]


def test_places_that_turn_out_to_be_the_same_line_are_one_site() -> None:
    # given two frames of which only the source tells the line
    sites = AllocationSites()
    for step in range(3):
        births = {
            0x1000 + step: Survivor(KIB, AllocationSite((Frame("/train.py", 0, "a"),), "aten::mul")),
            0x2000 + step: Survivor(KIB, AllocationSite((Frame("/train.py", 0, "b"),), "aten::mul")),
        }
        sites.step(births)

    # when both are found on line 7
    (site,) = sites.report(lambda frame: CodeLine(file=frame.file, line=7))

    # then
    assert (site.generations, site.bytes_per_step) == (2, 2 * KIB)


def test_sites_are_bounded() -> None:
    sites = AllocationSites()
    for step in range(2):
        sites.step({1000 * step + line: Survivor(line, _site(line)) for line in range(1, 300)})

    reported = _sites(sites)

    assert len(reported) == MOST_SITES
    assert reported[0].stack == _stack(299)


def test_nothing_watched_is_no_site() -> None:
    assert _sites(AllocationSites()) == ()
    assert AllocationSites().largest_growing() == []


def test_a_series_rises_if_it_never_falls_and_rises_often() -> None:
    assert rises([1, 2, 3, 4])
    assert rises([1, 1, 2, 2, 3])
    assert not rises([1, 2, 3])  # by chance
    assert not rises([1, 2, 3, 2, 4, 5])
    assert not rises([1, 1, 1, 1, 2])
    assert not rises([])


def _sizes(*steps: list[int]) -> RecurringSizes:
    sizes = RecurringSizes()
    for step in steps:
        sizes.step(step)
    return sizes


def test_under_a_curriculum_all_sizes_grow() -> None:
    steps = [[length * 64, length * 256, length * length] for length in range(100, 108)]

    assert _sizes(*steps).grow() == 1


def test_one_tensor_that_grows_is_no_curriculum_however_large() -> None:
    steps = [[64 * KIB, 32 * KIB, 512 * KIB * step, 16 * KIB] for step in range(1, 9)]

    assert _sizes(*steps).grow() == 0


def test_sizes_that_go_up_and_down_do_not_grow() -> None:
    steps = [[length * 64, length * 256] for length in (120, 90, 150, 100, 110, 140, 95, 130)]

    assert _sizes(*steps).grow() == 0


def test_half_of_the_bytes_may_grow() -> None:
    # given equal sizes, of which two of three rise, and the largest rise is left out
    steps = [[1000 + 2 * step, 999 + step, 500] for step in range(8)]

    assert 0.6 < _sizes(*steps).grow() < 0.7


def test_where_there_is_nothing_else_one_size_that_grows_is_enough() -> None:
    assert _sizes(*([1000 + step] for step in range(8))).grow() == 1


def test_what_outlives_its_step_counts_as_well() -> None:
    # given steps that free nothing of what they allocate: inputs and outputs are kept until the next
    sites = AllocationSites()
    for step in range(8):
        sites.step({2 * step: Survivor(KIB + step, _site(1)), 2 * step + 1: Survivor(2 * KIB + step, _site(2))})

    assert RecurringSizes().grow(sites.outliving()) == 1


def test_small_allocations_tell_nothing() -> None:
    steps = [[1 << 20, *(8 + step for _ in range(50))] for step in range(8)]

    assert _sizes(*steps).grow() == 0


def test_no_sizes_do_not_grow() -> None:
    assert RecurringSizes().grow() == 0
    assert _sizes([], [], [], [], []).grow() == 0
