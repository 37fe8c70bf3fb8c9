"""One rule, or whole cycles, asked in plain data and answered in plain data.

    answer({"kind": "available", "setup": {...}}) -> {"available": {...}, "potential": {...}}

`KINDS` has the kinds of questions; the fields of each are those of tests/data/governance_cases.json, whose `expect` has
the form of the answer. A question is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from netns.governance.apply import apply
from netns.governance.assignment import Attempt, Chosen, FlavorAssignment, Grade, Mode, PodSetAssignment, Way, preferred
from netns.governance.candidates import allowed, ordered
from netns.governance.cycle import CycleOutcome, cycle, reserved_amounts
from netns.governance.entries import QueueHead, classical_key, fair_key
from netns.governance.fair import TargetQueues
from netns.governance.flavors import Search, Simulate
from netns.governance.model import ClusterQueue, LocalQueue, Tried, Workload
from netns.governance.order import becomes_sticky, may_requeue, stays
from netns.governance.partial import largest_counts
from netns.governance.plain import (
    Data,
    admission_data,
    fungibility_of,
    nested,
    podset_of,
    quantities_of,
    settings_of,
    state_of,
    workload_of,
)
from netns.governance.preemption import Preemptor
from netns.governance.share import Share, share_of
from netns.governance.state import State

Answer = dict[str, Any]

_WAYS: Final = {
    "fit": Way.FIT, "reclaim": Way.RECLAIM, "preempt": Way.PREEMPT, "no_candidates": Way.NO_CANDIDATES,
    "no_preemption_candidates": Way.NO_CANDIDATES, "no_fit": Way.NO_FIT, "NoCandidates": Way.NO_CANDIDATES,
    "Preempt": Way.PREEMPT, "Reclaim": Way.RECLAIM,
}  # fmt: skip
_MODES: Final = {str(mode): mode for mode in Mode}


def answer(question: Data) -> Answer:
    """Return the answer to a question. Raises KeyError for an unknown kind, or a missing field."""
    return KINDS[question["kind"]](question)


def _available(question: Data) -> Answer:
    state = state_of(question["setup"], settings_of(question))
    nodes = {**state.nodes, **state.cohorts}
    return {
        "available": {name: nested({fr: node.available(fr) for fr in node.total}) for name, node in nodes.items()},
        "potential": {name: nested({fr: node.potential(fr) for fr in node.total}) for name, node in nodes.items()},
    }


def _dominant_resource_share(question: Data) -> Answer:
    state = state_of(question["setup"], settings_of(question))
    more = quantities_of(question.get("extra_request") or {})
    shares = []
    for node in (*state.nodes.values(), *state.cohorts.values()):
        share = share_of(node, more)
        kind = "cluster_queue" if node.is_queue else "cohort"
        shares.append(
            {
                "node": node.name,
                "type": kind,
                "share": share.rounded,
                "resource": share.resource,
                "borrowing": bool(share.borrowed),
            }
        )
    return {"shares": shares}


def _borrowing_on(question: Data) -> Answer:
    state = state_of(question["setup"], settings_of(question))
    name = question.get("cluster_queue") or next(iter(question["setup"]["usage"]))
    share = share_of(state.nodes[name])
    requested = quantities_of(question["request"])
    return {"borrowing": bool(share.borrowed), "borrowing_on_requested": share.borrows_on(requested)}


def _preemption_policy(question: Data) -> Answer:
    settings = settings_of(question)
    preemptor, candidate = workload_of(question["preemptor"]), workload_of(question["candidate"])
    return {"allowed": allowed(preemptor, candidate, question["policy"], settings)}


def _candidates_order(question: Data) -> Answer:
    settings = settings_of(question)
    found = ordered(
        [workload_of(each) for each in question["candidates"]],
        question["preemptor_cluster_queue"],
        settings,
        now=0.0,
        local_usage=settings.usage_sharing is not None,
    )
    return {"order": [each.name for each in found]}


def _flavor_preference(question: Data) -> Answer:
    a, b = ((_WAYS[each["mode"]], each["borrowing_level"]) for each in (question["a"], question["b"]))
    return {"a_preferred": preferred(a, b, fungibility_of(question["fungibility"]))}


def _partial_admission_search(question: Data) -> Answer:
    podsets = [podset_of(each) for each in question["podsets"]]

    def within(counts: list[int]) -> int | None:
        return sum(counts) if sum(counts) <= question["count_limit"] else None

    found = largest_counts(podsets, within)
    return {"found": found is not None, "count": found or 0}


def _queue_head(question: Data) -> Answer:
    data = question.get("cluster_queue") or {"name": "queue", "strategy": question["strategy"]}
    locals_ = question.get("local_queues") or [
        {"key": key} for key in dict.fromkeys(_local_key(each) for each in question["workloads"])
    ]
    setup = {
        "cluster_queues": [{**data, "strategy": question["strategy"]}],
        "local_queues": [{**each, "cluster_queue": data["name"]} for each in locals_],
        "workloads": [{"queue": "", **each} for each in question["workloads"]],
        "local_queue_usage": question.get("local_queue_usage"),
    }
    state = state_of(setup, settings_of(question))
    line = state.lines[data["name"]]
    by_usage = state.ledger is not None and state.queues[data["name"]].by_usage
    head = line.head(state.usage_of if by_usage else None)
    return {"head": None if head is None else head.name}


def _local_key(workload: Data) -> str:
    return f"{workload['key'].rpartition('/')[0]}/{workload.get('queue') or ''}"


def _queue_heads(question: Data) -> Answer:
    stopped = set(question.get("inactive_cluster_queues") or ())
    queues = [
        {**each, "stop_policy": "Hold"} if each["name"] in stopped else each
        for each in question["setup"]["cluster_queues"]
    ]
    setup = {**question["setup"], "cluster_queues": queues, "workloads": question["workloads"]}
    state = state_of(setup, settings_of(question))
    heads = [line.head() for line in state.lines.values() if state.inactive(line.queue) is None]
    found = [each for each in heads if each is not None]
    queue_of = {key: each.queue for key, each in state.workloads.items()}
    return {"heads": sorted(each.name for each in found), "local_queue_of": queue_of}


def _requeue(question: Data) -> Answer:
    indexes = question.get("last_tried_flavor_index")
    rows = [{"": indexes}] if isinstance(indexes, int) else [indexes] if isinstance(indexes, Mapping) else indexes
    tried = None if rows is None else Tried(tuple(rows), None)
    reason, strategy = question["reason"], question["strategy"]
    return {
        "inadmissible": not stays(reason, strategy=strategy, tried=tried),
        "sticky": becomes_sticky(reason, strategy=strategy),
    }


def _requeue_inadmissible(question: Data) -> Answer:
    state = state_of({**question["setup"], "workloads": question["workloads"]}, settings_of(question))
    for line in state.lines.values():
        for workload in list(line.active.values()):
            line.requeue(
                workload, "Generic" if line.queue.strategy == "BestEffortFIFO" else "NamespaceMismatch", now=0.0
            )
    moved = sum(state.wake(queue, now=0.0) for queue in question["event_on"])
    return {**_lines(state, active="active"), "moved": moved}


def _backoff(question: Data) -> Answer:
    return {"may_requeue": may_requeue(workload_of(question["workload"]), 0.0)}


def _entry_order(question: Data) -> Answer:
    settings = settings_of(question)
    entries = []
    for each in question["entries"]:
        entry = QueueHead(workload_of(each["workload"]), ClusterQueue(""), preemptor=bool(each.get("preemptor")))
        entry.made.level = each["borrowing"]
        entries.append(entry)
    entries.sort(key=lambda entry: classical_key(entry, settings))
    return {"order": [each.workload.name for each in entries]}


def _fair_entry_less(question: Data) -> Answer:
    settings = settings_of(question)

    def key(side: Data) -> Any:
        borrowed = frozenset((flavor, resource) for flavor, resource in side["borrows_on"])
        return fair_key(
            workload_of(side["workload"]),
            settings,
            Share(side["share"], borrowed=borrowed),
            quantities_of(side["requests"]),
            preemptor=side["preemptor"],
        )

    return {"a_first": key(question["a"]) < key(question["b"])}


def _resources_to_reserve(question: Data) -> Answer:
    state = state_of(question["setup"], settings_of(question))
    name = question.get("cluster_queue") or next(iter(question["setup"]["usage"]))
    data = question["assignment"]
    made = FlavorAssignment(usage=quantities_of(data["usage"]), level=data["borrowing"], forced=_MODES[data["mode"]])
    made.podsets = [PodSetAssignment(podset_of({"name": "main", "count": 1}), 1, {})]
    return {"reserved": nested(reserved_amounts(made, state.nodes[name]))}


def _fair_target_order(question: Data) -> Answer:
    state = state_of(question["setup"], settings_of(question))
    names = question["candidate_cluster_queues"]
    own = question["preemptor_cluster_queue"]
    candidates = [each for name in names for each in state.holding[name].values()]
    in_order = ordered(candidates, own, state.settings, now=0.0, local_usage=False)
    queues = TargetQueues.of(state, state.nodes[own], in_order, now=0.0)
    found = []
    actions = list(question.get("actions") or ())
    for queue in queues:
        found.append(queue.name)
        if "drop" in str(actions[len(found) - 1] if len(found) <= len(actions) else "pop").lower():
            queues.drop(queue)
        else:
            queues.pop(queue)
    return {"order": found}


def _preemption(question: Data) -> Answer:
    state = state_of(question["setup"], settings_of(question))
    incoming = question["incoming"]
    workload, queue = _placed_in(state, incoming["workload"], incoming["cluster_queue"])
    made = FlavorAssignment()
    for data in incoming["assignment"]:
        podset = next(each for each in workload.podsets if each.name == data["podset"])
        requests = {name: amount * data["count"] for name, amount in podset.requests.items()}
        flavors = {name: Chosen(each["flavor"], _MODES[each["mode"]]) for name, each in data["flavors"].items()}
        made.append(PodSetAssignment(podset, data["count"], requests, flavors))
    targets = Preemptor(state, 0.0).targets(workload, queue, made)
    fresh = [each for each in targets if not each.workload.has("Evicted")]
    return {
        "preempted": [{"workload": each.workload.key, "reason": each.reason} for each in fresh],
        "count": len(targets),
    }


def _placed_in(state: State, data: Data, name: str) -> tuple[Workload, ClusterQueue]:
    """Return a workload that waits in a cluster queue, whatever local queue its data names."""
    workload = workload_of(data)
    workload.queue = workload.queue or f"{workload.namespace}/{name}"
    state.local_queues[workload.queue] = LocalQueue(workload.queue, name)
    return workload, state.queues[name]


def _told(question: Data) -> Simulate:
    """Return a simulation whose results are given."""

    def grade(data: Data) -> Grade:
        return _WAYS[data["possibility"]], data.get("borrow_after") or 0

    default = grade(question.get("simulation_default") or {"possibility": "Preempt", "borrow_after": 0})
    told = {(each["flavor"], each["resource"]): grade(each) for each in question.get("simulation") or ()}
    return lambda _workload, fr, _amount: told.get(fr, default)


def _flavor_assignment(question: Data) -> Answer:
    state = state_of(question["setup"], settings_of(question))
    incoming = question["incoming"]
    data = {"key": "/incoming", "podsets": incoming["podsets"], "reclaimable": incoming.get("reclaimable")}
    workload, queue = _placed_in(state, data, incoming["cluster_queue"])
    made = Search(state, workload, queue, _told(question)).assign()
    return {
        "mode": str(made.mode),
        "borrowing": made.level,
        "usage": nested(made.usage),
        "no_fit_reason": made.reason or None,
        "podsets": [_podset_data(each) for each in made.podsets],
        "chosen": {res: chosen.flavor for each in made.podsets for res, chosen in each.flavors.items()},
    }


def _podset_data(podset: PodSetAssignment) -> Answer:
    return {
        "podset": podset.podset.name,
        "count": podset.count,
        "requests": podset.requests,
        "flavors": {
            resource: {"flavor": chosen.flavor, "mode": str(chosen.mode), "tried_flavor_index": chosen.tried}
            for resource, chosen in podset.flavors.items()
        },
        "reasons": [fact.data() for fact in podset.facts],
        "attempts": [_attempt_data(each) for each in podset.attempts],
    }


def _attempt_data(attempt: Attempt) -> Answer:
    found: Answer = {"flavor": attempt.flavor, "mode": str(attempt.mode), "borrow": attempt.level}
    if attempt.possibility is not None:
        found["possibility"] = attempt.possibility
    if attempt.facts:
        found["reasons"] = [fact.data() for fact in attempt.facts]
    if attempt.mode == Mode.NO_FIT and attempt.reason:
        found["no_fit_reason"] = attempt.reason
    return found


def _schedule(question: Data) -> Answer:
    state = state_of(question["setup"], settings_of(question))
    outcomes = []
    for number in range(question.get("cycles") or 1):
        outcomes.append(cycle(state, now=float(number)))
        apply(state, outcomes[-1], now=float(number))
    return {
        "admitted": _admitted(state),
        "newly_admitted": sorted(each.workload for outcome in outcomes for each in outcome.admitted),
        "preempted": [each for outcome in outcomes for each in _preempted(outcome)],
        "evicted": [{"workload": each.workload, "reason": "Preempted"} for o in outcomes for each in o.preempted],
        "skipped_preemptions": {name: outcomes[-1].skipped.get(name, 0) for name in state.queues},
        "pending_reasons": {key: reason for outcome in outcomes for key, reason in _reasons(outcome)},
        **_lines(state, active="left"),
    }


def _schedule_sequence(question: Data) -> Answer:
    state = state_of(question["setup"], settings_of(question))
    answers: list[Answer] = []
    now = 0.0
    for step in question["steps"]:
        now += 1
        match step["do"]:
            case "schedule":
                outcome = cycle(state, now=now)
                apply(state, outcome, now=now)
                answers.append(
                    {
                        "preempted": list(_preempted(outcome)),
                        "pending_reasons": dict(_reasons(outcome)),
                        "reserved": sorted(_admitted(state)),
                        "admitted": _admitted(state),
                    }
                )
            case "delete" | "finish":
                for key in step["workloads"]:
                    state.forget(key, now=now)
            case "requeue_associated":
                for name in state.queues:
                    state.wake(name, now=now)
            case other:
                raise KeyError(other)
    return {"after_first": answers[0], "admitted_after_second": answers[-1]["admitted"], "steps": answers}


def _schedule_afs(question: Data) -> Answer:
    state = state_of(question["setup"], settings_of(question))
    pending: dict[str, str] = {}
    for number in range(question["cycles"]):
        outcome = cycle(state, now=float(number))
        apply(state, outcome, now=float(number))
        pending |= {each.workload: each.reason for each in outcome.waiting}
        if number == 0 and question.get("delete_local_queue") and state.ledger is not None:
            state.ledger.forget(question["delete_local_queue"])
    reserved = _admitted(state)
    return {"reserved": reserved, "pending": {key: reason for key, reason in pending.items() if key not in reserved}}


def _admitted(state: State) -> dict[str, Answer]:
    return {
        key: admission_data(each.admission)
        for key, each in state.workloads.items()
        if each.holds_quota and each.admission is not None
    }


def _preempted(outcome: CycleOutcome) -> Iterator[Answer]:
    return ({"workload": each.workload, "reason": each.reason} for each in outcome.preempted)


def _reasons(outcome: CycleOutcome) -> Iterator[tuple[str, Answer]]:
    for each in outcome.waiting:
        found: Answer = {"reason": each.reason}
        if each.facts:
            found["facts"] = {name: [fact.data() for fact in facts] for name, facts in each.facts.items()}
        yield each.workload, found


def _lines(state: State, *, active: str) -> Answer:
    return {
        active: {name: line.ordered() for name, line in state.lines.items() if line.active},
        "inadmissible": {name: list(line.parked) for name, line in state.lines.items() if line.parked},
    }


KINDS: Final[Mapping[str, Callable[[Data], Answer]]] = {
    "available": _available,
    "backoff": _backoff,
    "borrowing_on": _borrowing_on,
    "candidates_order": _candidates_order,
    "dominant_resource_share": _dominant_resource_share,
    "entry_order": _entry_order,
    "fair_entry_less": _fair_entry_less,
    "fair_target_order": _fair_target_order,
    "flavor_assignment": _flavor_assignment,
    "flavor_preference": _flavor_preference,
    "partial_admission_search": _partial_admission_search,
    "preemption": _preemption,
    "preemption_policy": _preemption_policy,
    "queue_head": _queue_head,
    "queue_heads": _queue_heads,
    "requeue": _requeue,
    "requeue_inadmissible": _requeue_inadmissible,
    "resources_to_reserve": _resources_to_reserve,
    "schedule": _schedule,
    "schedule_afs": _schedule_afs,
    "schedule_sequence": _schedule_sequence,
}
