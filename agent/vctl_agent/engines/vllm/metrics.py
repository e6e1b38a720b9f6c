"""What the adapter reads of vLLM's `/metrics`: its run, its KV cache, its slots.

Of some hundred series it takes five, so only their lines are parsed.
"""

from collections.abc import Iterator

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_START = "process_start_time_seconds"
_KV_USED = "vllm:kv_cache_usage_perc"
_RUNNING = "vllm:num_requests_running"
_LORA = "vllm:lora_requests_info"
_SLEEP = "vllm:engine_sleep_state"
_TAKEN = (_START, _KV_USED, _RUNNING, _LORA, _SLEEP)


class Metrics(msgspec.Struct, frozen=True):
    """What the engine tells of itself."""

    started: str = ""  # when its process began; empty: not told
    kv_used: float | None = None  # of the fullest of its ranks
    max_loras: int | None = None  # told once a request has named an adapter
    tells_load: bool = False
    is_asleep: bool = False


def read(text: str) -> Metrics:
    """Return what an answer of `/metrics` says; what it does not say is unknown.

    Raises:
        ValueError: It is no such answer.
    """
    lines = "\n".join(line for line in text.splitlines() if line.startswith(_TAKEN))
    found = list(_samples(lines))
    return Metrics(
        started=next((f"{s.value:.2f}" for s in found if s.name == _START), ""),
        kv_used=max((s.value for s in found if s.name == _KV_USED), default=None),
        max_loras=next((int(s.labels["max_lora"]) for s in found if s.name == _LORA), None),
        tells_load=any(s.name == _RUNNING for s in found),
        is_asleep=any(_is_asleep(s) for s in found),
    )


def _samples(lines: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(lines + "\n"):
        yield from family.samples


def _is_asleep(sample: Sample) -> bool:
    state = sample.labels.get("sleep_state", "awake")
    return sample.name == _SLEEP and state != "awake" and sample.value > 0
