"""Messages are derived from actions, so every action's input must be exactly its neighbor's output."""

from hypothesis import given
from hypothesis import strategies as st

from heddle.schedule import Action, Kind, Payload, build, consumer, incoming, outgoing, producer
from heddle.schedule.messages import TAG_LIMIT

F, B = Kind.FORWARD, Kind.BACKWARD


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 4))
def test_what_is_sent_is_what_is_awaited_and_no_tag_comes_twice(pipeline, microbatches, virtual):
    schedule = build("gpipe", pipeline, microbatches, virtual)
    actions = [action for order in schedule.ranks for action in order]
    sent = [message for action in actions if (message := outgoing(schedule, action))]
    awaited = [message for action in actions if (message := incoming(schedule, action))]
    assert sorted(sent) == sorted(awaited)
    tags = [message.tag for message in sent]
    assert len(set(tags)) == len(tags)
    assert all(0 <= tag < TAG_LIMIT for tag in tags)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_producer_and_consumer_are_inverse(pipeline, microbatches, virtual):
    schedule = build("gpipe", pipeline, microbatches, virtual)
    for rank, order in enumerate(schedule.ranks):
        for action in order:
            target = consumer(schedule, action)
            message = outgoing(schedule, action)
            if target is None:
                assert message is None
            else:
                assert producer(schedule, target) == action
                assert incoming(schedule, target) == message
                if message is not None:
                    assert (message.source, message.destination) == (rank, schedule.rank_of(target.chunk))


def test_two_ranks_with_chunks_are_each_others_previous_and_next():
    schedule = build("interleaved", 2, 2, 2)  # chunks 0 and 2 on rank 0, chunks 1 and 3 on rank 1
    activation = outgoing(schedule, Action(F, 1, 0))
    gradient = outgoing(schedule, Action(B, 1, 0))
    assert activation[:5] == (Payload.ACTIVATION, 1, 0, 1, 0)
    assert gradient[:5] == (Payload.GRADIENT, 1, 0, 1, 0)
    assert activation.tag != gradient.tag


def test_ends_of_the_model_have_no_neighbor():
    schedule = build("1f1b", 3, 2)
    assert incoming(schedule, Action(F, 0, 1)) is None
    assert outgoing(schedule, Action(F, 2, 1)) is None
    assert incoming(schedule, Action(B, 2, 1)) is None
    assert outgoing(schedule, Action(B, 0, 1)) is None


def test_one_rank_hands_over_in_memory():
    schedule = build("interleaved", 1, 2, 2)
    assert producer(schedule, Action(F, 1, 0)) == Action(F, 0, 0)
    assert incoming(schedule, Action(F, 1, 0)) is None
    assert consumer(schedule, Action(B, 1, 0)) == Action(B, 0, 0)
    assert outgoing(schedule, Action(B, 1, 0)) is None


def test_a_message_says_what_it_is():
    schedule = build("1f1b", 2, 2)
    assert str(incoming(schedule, Action(B, 0, 1))) == "gradient of microbatch 1 from chunk 1 on rank 1"
