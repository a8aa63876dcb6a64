"""Numbers of partitions for a group in which members subscribe to different topics: balance first, then stickiness.

The balance starts from what members own. Unassigned partitions go to the subscribers with the fewest partitions. Then
each topic moves partitions from its fullest owner to its emptiest subscriber, in several passes over all topics. Last,
partitions are passed on along paths: a member with many partitions gives one of a topic to a second member, which gives
one of another topic to a third. When no such path leads to a member with at least two partitions fewer, no assignment
has a smaller sum of squared totals.

The number of passes and the steps of the search for paths are bounded. At a bound the result is valid, but it may be
less balanced than possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

from kraft.broker.consumer_group.assignors.claims import Counts, TopicClaims

PASSES_MAX = 16
SEARCH_STEPS_MAX = 500_000
"""Maximum number of (topic, subscriber) pairs that all searches for paths examine together."""


def mixed_counts(member_count: int, topics: Sequence[TopicClaims]) -> list[Counts]:
    """Return the numbers of partitions of each topic, by member position."""
    balance = _Balance(member_count, topics)
    balance.assign_unowned()
    balance.move_within_topics()
    balance.move_along_paths()
    return balance.counts


class _Balance:
    """The numbers while they are balanced. `totals` has each member's number of partitions, `held` the topics of which
    it has any."""

    def __init__(self, member_count: int, topics: Sequence[TopicClaims]) -> None:
        self.topics = topics
        self.counts: list[Counts] = []
        self.totals = [0] * member_count
        self.held: list[dict[int, None]] = [{} for _ in range(member_count)]
        for number, topic in enumerate(topics):
            self.counts.append({position: len(topic.owned[position]) for position in sorted(topic.owned)})
            for position, count in self.counts[number].items():
                self.totals[position] += count
                self.held[position][number] = None
        # topics with many partitions per subscriber leave the least choice, so they come first
        self.order = sorted(
            range(len(topics)),
            key=lambda number: (-topics[number].partition_count / len(topics[number].subscribers), number),
        )

    def assign_unowned(self) -> None:
        """Assign each partition without an owner to the subscriber with the fewest partitions."""
        for number in self.order:
            topic = self.topics[number]
            unowned = topic.partition_count - sum(self.counts[number].values())
            if not unowned:
                continue
            emptiest = [(self.totals[position], position) for position in topic.subscribers]
            heapify(emptiest)
            for _ in range(unowned):
                total, position = emptiest[0]
                self._add(number, position)
                heapreplace(emptiest, (total + 1, position))

    def move_within_topics(self) -> None:
        """Balance each topic by itself, until a whole pass moves nothing."""
        for _ in range(PASSES_MAX):
            moved = [self._balance_topic(number) for number in self.order]
            if not any(moved):
                return

    def _balance_topic(self, number: int) -> bool:
        """Move partitions from the fullest owners to the emptiest subscribers, while the totals differ by more than
        one. Return whether anything moved."""
        totals, counts, subscribers = self.totals, self.counts[number], self.topics[number].subscribers
        lowest = min([totals[position] for position in subscribers])
        if max([totals[position] for position in counts]) <= lowest + 1:
            return False
        fullest = [(-totals[position], position) for position in counts]
        emptiest = [(totals[position], position) for position in subscribers]
        heapify(fullest)
        heapify(emptiest)
        while fullest:
            total, giver = -fullest[0][0], fullest[0][1]
            least, taker = emptiest[0]
            if total <= least + 1:
                break
            if giver not in counts:
                heappop(fullest)
                continue
            self._move(number, giver, taker)
            heapreplace(fullest, (1 - total, giver))
            heapreplace(emptiest, (least + 1, taker))
        return True

    def move_along_paths(self) -> None:
        """Pass partitions on along paths, from the fullest members first, until no path improves the balance."""
        frozen = [False] * len(self.totals)
        steps = SEARCH_STEPS_MAX
        while steps > 0:
            highest = max((total for total, done in zip(self.totals, frozen, strict=True) if not done), default=0)
            if highest < 2:
                return
            path, reached, examined = self._find_path(highest, frozen)
            steps -= examined
            for number, giver, taker in path:
                self._move(number, giver, taker)
            if not path:
                for position in reached:
                    frozen[position] = True

    def _find_path(self, highest: int, frozen: Sequence[bool]) -> tuple[list[tuple[int, int, int]], list[int], int]:
        """Search the shortest path from a member with `highest` partitions to one with at least two fewer.

        Return its moves (topic, giver, taker), all members that the search reached, and the number of pairs that it
        examined. Without a path, the members that it reached can improve nothing and be left out of later searches:
        partitions move only among themselves, and their totals differ by at most one.
        """
        totals = self.totals
        reached = [position for position, total in enumerate(totals) if total == highest and not frozen[position]]
        came_from: dict[int, tuple[int, int] | None] = dict.fromkeys(reached)
        seen_topics: set[int] = set()
        examined = len(totals)
        for giver in reached:  # the list grows during the loop
            for number in self.held[giver]:
                if number in seen_topics:
                    continue
                seen_topics.add(number)
                subscribers = self.topics[number].subscribers
                examined += len(subscribers)
                for taker in subscribers:
                    if taker in came_from or frozen[taker]:
                        continue
                    came_from[taker] = (number, giver)
                    reached.append(taker)
                    if totals[taker] <= highest - 2:
                        return _moves(came_from, taker), reached, examined
        return [], reached, examined

    def _add(self, number: int, position: int) -> None:
        counts = self.counts[number]
        counts[position] = counts.get(position, 0) + 1
        self.totals[position] += 1
        self.held[position][number] = None

    def _move(self, number: int, giver: int, taker: int) -> None:
        counts = self.counts[number]
        self.totals[giver] -= 1
        counts[giver] -= 1
        if not counts[giver]:
            del counts[giver]
            del self.held[giver][number]
        self._add(number, taker)


def _moves(came_from: dict[int, tuple[int, int] | None], taker: int) -> list[tuple[int, int, int]]:
    """Return the moves of the path that ends at `taker`."""
    moves: list[tuple[int, int, int]] = []
    while (step := came_from[taker]) is not None:
        number, giver = step
        moves.append((number, giver, taker))
        taker = giver
    return moves
