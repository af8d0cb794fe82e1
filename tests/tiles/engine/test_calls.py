"""The end of Python waits for threads that are at calls, and only for those."""

import os
import threading
import time

from heddle.tiles.engine import pool  # what a fork does is registered there
from heddle.tiles.engine.calls import Calls, calls


def test_the_end_waits_until_a_thread_has_come_to_its_place():
    ours, entered, go_on = Calls(), threading.Event(), threading.Event()

    def work():
        with ours:
            entered.set()
            go_on.wait()
            ours.wait_if_ending()

    threading.Thread(target=work, daemon=True).start()
    entered.wait()
    ours.begin_to_end()
    threading.Timer(0.2, go_on.set).start()
    ours.wait_for_all()
    assert go_on.is_set()
    assert not ours.threads


def test_who_waits_without_having_entered_is_not_waited_for():
    ours = Calls()
    ours.begin_to_end()
    threading.Thread(target=ours.wait_if_ending, daemon=True).start()
    time.sleep(0.1)
    assert not ours.threads
    ours.wait_for_all()


def test_a_forked_process_waits_for_no_thread_of_its_parent():
    entered, go_on = threading.Event(), threading.Event()

    def work():
        with calls:
            entered.set()
            go_on.wait()

    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    assert pool.calls is calls
    child = os.fork()
    if child == 0:
        os._exit(len(calls.threads))
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_calls_run_in_their_order_and_one_at_most_goes_ahead():
    line = pool.CallLine()
    first, second, third = (line.join() for _ in range(3))
    assert line.turn_of(first)
    assert not line.turn_of(second)  # it came later
    line.waiting.remove(first)
    line.running[first] = 0
    assert line.turn_of(second)
    line.waiting.remove(second)
    line.running[second] = 0
    assert not line.turn_of(third)  # the first would wait for as long as others come
    line.running[second] = threading.get_ident()
    assert line.turn_of(third)  # within the second, which waits for it
    line.running[second] = 0
    del line.running[first]
    assert line.turn_of(third)
