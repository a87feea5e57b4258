"""Sums over the steps of one replica, and the steps themselves as flat arrays when asked for."""

from __future__ import annotations

from array import array

import numpy as np

from planner.kv_cache import KvCache
from planner.scheduler.timeline import EngineLog, StepRecords
from planner.workload import Request


class Log:
    """Written by the step loop, read once it has run."""

    def __init__(self, record_steps: bool) -> None:
        self.recording = record_steps
        self.steps = self.decode_steps = self.decode_rows = self.padding_rows = 0
        self.output_busy_s = self.input_busy_s = self.cached_busy_s = 0.0
        self.kv_block_s = self.kv_token_s = 0.0
        self.end_s, self.seconds = array("d"), array("f")
        self.kv_used_blocks = array("i")
        self.decode_sequences, self.chunk_tokens, self.waiting = array("i"), array("i"), array("i")
        self.run_number, self.run_first, self.run_last, self.run_start_s = array("q"), array("q"), array("q"), array("d")

    def alike(self, steps: int, rows: int, padding_rows: int, chunk_tokens: int, waiting: int) -> None:
        """Book what `steps` steps in a row have in common."""
        self.steps += steps
        self.decode_rows += steps * rows
        self.padding_rows += steps * padding_rows
        if rows:
            self.decode_steps += steps
        if not self.recording:
            return
        if steps == 1:
            self.decode_sequences.append(rows)
            self.chunk_tokens.append(chunk_tokens)
            self.waiting.append(waiting)
        else:
            self.decode_sequences.extend([rows] * steps)
            self.chunk_tokens.extend([chunk_tokens] * steps)
            self.waiting.extend([waiting] * steps)

    def run(self, request: Request, clock: int) -> None:
        """A decode run ends."""
        if self.recording:
            self.run_number.append(request.number)
            self.run_first.append(request.start_clock)
            self.run_last.append(clock)
            self.run_start_s.append(request.run_start_s)

    def engine(self, kv: KvCache, seats: int, end_s: float) -> EngineLog:
        """Everything so far, frozen."""
        records = None
        if self.recording:
            records = StepRecords(
                end_s=np.array(self.end_s),
                seconds=np.array(self.seconds),
                decode_sequences=np.array(self.decode_sequences),
                chunk_tokens=np.array(self.chunk_tokens),
                kv_used_blocks=np.array(self.kv_used_blocks),
                waiting=np.array(self.waiting),
                run_number=np.array(self.run_number),
                run_first=np.array(self.run_first),
                run_last=np.array(self.run_last),
                run_start_s=np.array(self.run_start_s),
            )
        return EngineLog(
            steps=self.steps,
            decode_steps=self.decode_steps,
            decode_rows=self.decode_rows,
            padding_rows=self.padding_rows,
            output_busy_s=self.output_busy_s,
            input_busy_s=self.input_busy_s,
            cached_busy_s=self.cached_busy_s,
            kv_block_s=self.kv_block_s,
            kv_token_s=self.kv_token_s,
            seats=seats,
            total_blocks=kv.total_blocks,
            block_size=kv.block_size,
            end_s=end_s,
            records=records,
        )
