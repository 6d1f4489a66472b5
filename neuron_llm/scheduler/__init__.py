"""Scheduling on integers alone: requests, blocks, buckets, admission, padding.

Imports no torch and no other room.
"""

from neuron_llm.scheduler.async_scheduler import AsyncScheduler
from neuron_llm.scheduler.block_pool import NULL_BLOCK_ID, BlockPool
from neuron_llm.scheduler.buckets import (
    Bucket,
    BucketSet,
    DecodeBucket,
    PrefillBucket,
    get_bucket_for_count,
    get_default_num_batched_tokens_buckets,
    get_default_num_seqs_buckets,
)
from neuron_llm.scheduler.config import SchedulerConfig
from neuron_llm.scheduler.neuron_scheduler import NeuronAsyncScheduler, NeuronScheduler
from neuron_llm.scheduler.output import (
    CachedRequestData,
    EngineCoreOutput,
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
)
from neuron_llm.scheduler.request import FinishReason, Request, RequestStatus
from neuron_llm.scheduler.scheduler import Scheduler
from neuron_llm.scheduler.stats import HoldReason, SchedulerState, SchedulerStats

__all__ = [
    "NULL_BLOCK_ID",
    "AsyncScheduler",
    "BlockPool",
    "Bucket",
    "BucketSet",
    "CachedRequestData",
    "DecodeBucket",
    "EngineCoreOutput",
    "FinishReason",
    "HoldReason",
    "ModelRunnerOutput",
    "NeuronAsyncScheduler",
    "NeuronScheduler",
    "NewRequestData",
    "PrefillBucket",
    "Request",
    "RequestStatus",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerOutput",
    "SchedulerState",
    "SchedulerStats",
    "get_bucket_for_count",
    "get_default_num_batched_tokens_buckets",
    "get_default_num_seqs_buckets",
]
