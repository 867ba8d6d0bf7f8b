from __future__ import annotations

from tbmem.sources.counters.host import SharedPeak


class _Counter:
    """A counter whose peak falls to the present level when it is reset."""

    def __init__(self) -> None:
        self.level = 10
        self.peak = 10
        self.resets = 0
        self.shared = SharedPeak(self._reset)

    def spike(self, height: int) -> None:
        self.peak = max(self.peak, height)

    def take(self, reader: str) -> int:
        return self.shared.take(reader, (self.peak,))[0]

    def _reset(self) -> None:
        self.peak = self.level
        self.resets += 1


def test_one_reader_sees_each_peak_once() -> None:
    # given
    counter = _Counter()
    counter.shared.join("a")
    # when
    counter.spike(50)
    # then
    assert [counter.take("a"), counter.take("a")] == [50, 10]
    assert counter.resets == 2


def test_each_of_two_readers_sees_the_peak() -> None:
    # given
    counter = _Counter()
    counter.shared.join("a")
    counter.shared.join("b")
    # when
    counter.spike(50)
    # then
    assert [counter.take("a"), counter.take("b")] == [50, 50]
    assert [counter.take("a"), counter.take("b")] == [10, 10]


def test_a_slow_reader_gets_the_highest_of_all_it_missed() -> None:
    # given a reader that asks every third time
    counter = _Counter()
    counter.shared.join("fast")
    counter.shared.join("slow")
    # when
    seen = []
    for height in (30, 50, 20):
        counter.spike(height)
        seen.append(counter.take("fast"))
    # then
    assert seen == [30, 50, 20]
    assert counter.take("slow") == 50


def test_a_reader_that_left_is_not_waited_for() -> None:
    # given
    counter = _Counter()
    counter.shared.join("a")
    counter.shared.join("b")
    counter.shared.leave("b")
    # when
    counter.spike(50)
    # then
    assert counter.take("a") == 50
    assert counter.take("a") == 10


def test_a_peak_that_another_reader_took_away_survives_its_leaving() -> None:
    # given a spike that only b has read so far
    counter = _Counter()
    counter.shared.join("a")
    counter.shared.join("b")
    counter.spike(50)
    counter.take("b")
    # when
    counter.shared.leave("b")
    # then
    assert counter.take("a") == 50


def test_leaving_twice_is_harmless() -> None:
    # given
    counter = _Counter()
    counter.shared.join("a")
    # when
    counter.shared.leave("a")
    counter.shared.leave("a")
    # then
    counter.shared.join("b")
    assert counter.take("b") == 10


def test_peaks_that_are_reset_together_are_kept_apart() -> None:
    # given allocated and reserved in one counter
    shared = SharedPeak(lambda: None)
    shared.join("a")
    shared.join("b")
    # when
    shared.take("b", (5, 100))
    # then
    assert shared.take("a", (7, 90)) == (7, 100)
