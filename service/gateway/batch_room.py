"""Room for batches, which belongs to clients in equal parts: one that holds all of it gives way to the others."""

from collections.abc import Callable

_MOST_BATCHES = 8  # at the same time: each holds its questions and answers in memory
_MOST_CLIENTS = 64  # that have a batch each, where so many clients ask

GiveWay = Callable[[], None]


class BatchRoom:
    """Which batches are held, by client."""

    def __init__(self) -> None:
        self._held: dict[str, list[GiveWay]] = {}  # the newest last

    def enter(self, client: str, give_way: GiveWay) -> bool:
        """Tell whether a client's batch is taken in; `give_way` is called where its room is needed for others.

        Where there is no room, the newest batch of the client that has most gives way to one that will have fewer.
        Every client may have one.
        """
        own = len(self._held.get(client, ()))
        if sum(map(len, self._held.values())) >= _MOST_BATCHES:
            most = max(self._held, key=lambda each: len(self._held[each]))
            if len(self._held[most]) > own + 1:
                self._held[most].pop()()
            elif own or len(self._held) >= _MOST_CLIENTS:
                return False
        self._held.setdefault(client, []).append(give_way)
        return True

    def leave(self, client: str, give_way: GiveWay) -> None:
        """Note that a batch has ended; nothing where it gave way."""
        held = self._held.get(client, [])
        if give_way in held:
            held.remove(give_way)
        if not held:
            self._held.pop(client, None)
