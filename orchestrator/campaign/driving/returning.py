"""Sees whether a lost host is back, and has it made fit for further tasks. Never waits for it."""

from collections.abc import Callable
from typing import Final

from orchestrator.errors import InfrastructureError
from orchestrator.scheduling import Asking, Scheduler
from orchestrator.scheduling.chores import Returned, is_there, take_up

PING_S: Final = 5.0
"""A host that is there answers in well under a second; in more a frozen one is asked anew, if it comes back."""

PAUSE_S: Final = 3.0
"""Between two attempts."""

TAKE_UP_S: Final = 60.0
"""For removing what is left there and delivering what waits."""


class Return:
    """The way back of one host: it answers, it is made fit, it is taken up again."""

    def __init__(self, scheduler: Scheduler, host: str, returned: Callable[[], Returned]) -> None:
        """Asks nobody yet.

        Args:
            scheduler: reaches the host.
            host: its name.
            returned: what is to be done there, once it answers.
        """
        self._scheduler = scheduler
        self._host = host
        self._returned = returned
        self._ping: Asking[str] | None = None
        self._taking_up: Asking[list[str]] | None = None
        self._until_s = 0.0
        self._not_before_s = 0.0
        self.problem: str | None = None
        """Why it could not be taken up, though it answered."""

    @property
    def is_under_way(self) -> bool:
        """Whether it has answered, and is being made fit."""
        return self._taking_up is not None

    def look(self, now_s: float) -> list[str] | None:
        """Goes on as far as that is possible without waiting.

        Returns:
            What a person should know, once the host is fit; null until then.
        """
        if self._taking_up is None:
            self._look_for_answer(now_s)
        if self._taking_up is None:
            return None
        told = self._taking_up.reply()
        if isinstance(told, list):
            self._taking_up = None
            return told
        if told is not None:
            self.problem = str(told)
            self._taking_up = None
            self._not_before_s = now_s + PAUSE_S
        elif now_s > self._until_s:
            self.problem = f"it answers, but did not remove what was left there within {TAKE_UP_S:.0f} s"
            self._again(now_s)
        return None

    def drop(self) -> None:
        """Takes back what was asked."""
        for asking in (self._ping, self._taking_up):
            if asking is not None:
                asking.drop()
        self._ping = self._taking_up = None

    def _look_for_answer(self, now_s: float) -> None:
        if self._ping is None:
            if now_s < self._not_before_s:
                return
            self._ping = self._scheduler.begin(is_there, self._host, self._host)
            self._until_s = now_s + PING_S
        answer = self._ping.reply()
        if isinstance(answer, InfrastructureError):
            self._ping = None
            self._not_before_s = now_s + PAUSE_S
        elif answer is not None:
            self._ping = None
            self._taking_up = self._scheduler.begin(take_up, self._host, self._returned())
            self._until_s = now_s + TAKE_UP_S
        elif now_s > self._until_s:
            self._again(now_s)

    def _again(self, now_s: float) -> None:
        self.drop()
        self._not_before_s = now_s + PAUSE_S
