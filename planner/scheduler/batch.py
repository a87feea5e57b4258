"""The sequences that decode, known only by their sums.

The trick that makes plain Python enough is a *decode clock* that counts decode steps. When a sequence starts to decode, the decode
step that emits its last token is known, and so are the one that emits its first token after thinking and the one after which its
context fills the attention window. Those are *appointments*. A decode step then touches no sequence: the summed context grows by what
all of them grow by, and the clock looks up who has an appointment.
"""

from __future__ import annotations

from math import ceil, isnan
from typing import Literal

from planner.scheduler.growth import Growth
from planner.workload import Request

Occasion = Literal["window", "answer", "finish"]


class DecodeBatch:
    """Rows of the next decode step."""

    def __init__(self, growth: Growth, window: int | None) -> None:
        self.growth, self.window = growth, window
        self.clock = 0
        """Decode steps so far."""
        self.sequences = 0
        self.context_tokens: float = 0
        """Σ of the tokens they attend to in the next step, each one's new token included."""
        self.windowed_context_tokens: float = 0
        """Σ min(that, window)."""
        self.tokens_per_step: float = 0
        """What one decode step adds to the first sum, and the next one to the second."""
        self.windowed_tokens_per_step: float = 0
        self.appointments: dict[int, list[tuple[Occasion, Request]]] = {}
        """By the clock after the step in which they fall."""

    def start(self, request: Request, now_s: float) -> None:
        """Begin a decode run: add a row, and note what lies ahead of it."""
        tokens_left = request.output_tokens - request.emitted_tokens
        grows = 1 if tokens_left == request.steps_left else tokens_left / request.steps_left
        request.tokens_per_step, request.start_clock, request.run_start_s = grows, self.clock, now_s
        context = request.prompt_tokens + 1
        self.sequences += 1
        self.context_tokens += context
        self.tokens_per_step += grows
        self.growth.start(request, self.clock)
        steps, request.answer_clock, request.window_clock = request.steps_left, 0, 0
        if self.window is not None:
            self.windowed_context_tokens += min(context, self.window)
            if context < self.window:
                self.windowed_tokens_per_step += grows
                request.window_clock = self.clock + ceil((self.window - context) / grows)
                if request.window_clock < self.clock + steps:
                    self._meet("window", request, request.window_clock)
        if isnan(request.answer_s):
            thinking_steps = ceil((request.thinking_tokens + 1 - request.emitted_tokens) / grows)
            request.answer_clock = self.clock + min(thinking_steps, steps)
            self._meet("answer", request, request.answer_clock)
        request.finish_clock = self.clock + steps
        self._meet("finish", request, request.finish_clock)

    def tick(self) -> None:
        """A decode step is over."""
        self.clock += 1
        self.context_tokens += self.tokens_per_step
        self.windowed_context_tokens += self.windowed_tokens_per_step

    def fill_window(self, request: Request) -> None:
        """Its context has reached the window: what the windowed layers read of it grows no more."""
        context = request.prompt_tokens + 1 + (request.window_clock - request.start_clock) * request.tokens_per_step
        self.windowed_context_tokens -= context - min(context, self.window or 0)
        self.windowed_tokens_per_step -= request.tokens_per_step
        request.window_clock = 0

    def stop(self, request: Request, early: bool) -> None:
        """End a decode run: bring the request up to date and take back its growth. Its row stays.

        `early`: before its last step, so that appointments are left to cancel.
        """
        steps = self.clock - request.start_clock
        grown = steps * request.tokens_per_step
        request.computed_tokens = request.prompt_tokens + grown
        request.emitted_tokens += grown
        request.steps_left -= steps
        request.blocks += self.growth.stop(request, self.clock)
        self.tokens_per_step -= request.tokens_per_step
        if request.window_clock:
            self.windowed_tokens_per_step -= request.tokens_per_step
        if early:
            for clock in {request.window_clock, request.answer_clock, request.finish_clock}:
                self._cancel(request, clock)
        request.start_clock = -1

    def remove(self, request: Request) -> None:
        """Take out the row of a request whose run has ended."""
        context = request.computed_tokens + 1
        self.sequences -= 1
        self.context_tokens -= context
        if self.window is not None:
            self.windowed_context_tokens -= min(context, self.window)
        if not self.sequences:  # leaves no rounding behind
            self.context_tokens = self.windowed_context_tokens = 0
            self.tokens_per_step = self.windowed_tokens_per_step = 0

    def _meet(self, occasion: Occasion, request: Request, clock: int) -> None:
        if clock in self.appointments:
            self.appointments[clock].append((occasion, request))
        else:
            self.appointments[clock] = [(occasion, request)]

    def _cancel(self, request: Request, clock: int) -> None:
        if clock in self.appointments:
            self.appointments[clock] = [entry for entry in self.appointments[clock] if entry[1] is not request]
            if not self.appointments[clock]:
                del self.appointments[clock]
