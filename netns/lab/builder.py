"""Build a lab operation by operation, each name recorded first, and remove what a record names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Final

from netns.backends.kernel.netlink import add_namespace, apply, delete_namespace
from netns.backends.relay.client import start_relay
from netns.backends.relay.tap import NETNS_DIRECTORY
from netns.errors import BackendError
from netns.lab import names
from netns.lab.operations import AddNamespace, InNamespace, Operation, StartRelay
from netns.lab.plan import namespace
from netns.lab.state import LabDirectory, LabState
from netns.processes import ProcessIdentity, end, processes_in, reap, start_detached
from netns.signals import signals_raise, undisturbed
from netns.topology.model import Capture

CAPTURE_WITHIN_S: Final = 60.0
"""How long a capture may take to begin."""


def build(directory: LabDirectory, state: LabState, steps: Iterable[Operation]) -> LabState:
    """Execute `steps` and record each name first; return the record of the finished lab.

    If an error, SIGINT, SIGTERM or SIGHUP interrupts it, everything is removed, and then the exception is raised again.
    """
    steps = tuple(steps)
    _refuse_taken_names(steps)
    with signals_raise():
        try:
            return _build(directory, state, steps)
        except BaseException:
            recorded = directory.read()
            if recorded is not None:
                dismantle(directory, recorded)
            raise


def dismantle(directory: LabDirectory, state: LabState) -> None:
    """Remove what `state` names: the relay, the processes inside the namespaces, the namespaces, the record itself.

    Objects that no longer exist are skipped, so that an interrupted call can be repeated.
    """
    directory.write(replace(state, phase="going down"))
    own = [*([] if state.relay is None else [state.relay]), *state.capture_processes]
    end(own)  # SIGTERM first: captures complete their files
    reap(own)
    end(processes_in(state.namespaces))
    for netns in reversed(state.namespaces):
        names.remove(netns, directory=directory.path)
        if exists(netns):
            delete_namespace(netns)
    directory.remove()


def problems(state: LabState) -> list[str]:
    """Return the deviations from the record, one line each; empty for a lab that is up and complete."""
    found = [] if state.phase == "up" else [f"it is {state.phase}, or was interrupted on the way"]
    found += [f"the namespace {netns} is gone" for netns in state.namespaces if not exists(netns)]
    if state.relay is not None and not state.relay.alive:
        found.append(f"the relay (process {state.relay.pid}) is dead")
    found += [f"a capture (process {process.pid}) is dead" for process in state.capture_processes if not process.alive]
    if state.owner is not None and not state.owner.alive:
        found.append(f"its owner (process {state.owner.pid}) is dead")
    return found


def exists(netns: str) -> bool:
    """Return whether there is a named namespace `netns`."""
    return (NETNS_DIRECTORY / netns).exists()


def _build(directory: LabDirectory, state: LabState, steps: tuple[Operation, ...]) -> LabState:
    for kind, group in groupby(steps, key=_kind):
        batch = tuple(group)
        if kind is InNamespace:
            skipped = apply(step for step in batch if isinstance(step, InNamespace))
            state = replace(state, notes=(*state.notes, *_notes(skipped)))
        for step in batch:
            if isinstance(step, AddNamespace):
                state = replace(state, namespaces=(*state.namespaces, step.netns))
                directory.write(state)
                with undisturbed():
                    add_namespace(step.netns)
            elif isinstance(step, StartRelay):
                directory.write(state)
                state = _start_relay(directory, state, step)
        if kind is AddNamespace:
            hosts = {namespace(state.topology, host) for host in state.topology.hosts}
            with undisturbed():
                names.add(hosts & {*state.namespaces}, directory=directory.path, topology=state.topology)
    for number, capture in enumerate(state.topology.captures):
        log_path = directory.path / f"capture.{number}.log"
        with undisturbed():
            process = _start_capture(state.topology.name, capture, log_path=log_path)
            state = replace(state, capture_processes=(*state.capture_processes, process))
            directory.write(state)
    state = replace(state, phase="up")
    directory.write(state)
    return state


def _kind(step: Operation) -> object:
    return InNamespace if isinstance(step, InNamespace) else type(step)


def _notes(skipped: Iterable[str]) -> list[str]:
    return [f"this kernel has no {key}" for key in sorted(set(skipped))]


def _refuse_taken_names(steps: Iterable[Operation]) -> None:
    """Raise before anything is recorded: an existing namespace is not this lab's, and must not be removed."""
    for step in steps:
        if isinstance(step, AddNamespace) and exists(step.netns):
            raise BackendError(
                f"the network namespace {step.netns} exists and belongs to no lab; "
                f"rename the lab or remove it (ip netns delete {step.netns})"
            )


def _start_relay(directory: LabDirectory, state: LabState, step: StartRelay) -> LabState:
    """Start the relay; return the record with its process id, which is written before the relay does anything."""
    directory.relay_spec.write_text(json.dumps(step.to_dict(control=str(directory.relay_control))))

    def record(pid: int) -> None:
        nonlocal state
        state = replace(state, relay=ProcessIdentity.of(pid))
        directory.write(state)

    start_relay(directory.relay_spec, log_path=directory.relay_log, record=record)
    return state


def _start_capture(lab: str, capture: Capture, *, log_path: Path) -> ProcessIdentity:
    """Start a process of `srd-lab capture` that runs as long as the lab is up; return when it records."""
    overwrite = ["--overwrite"] if capture.overwrite else []
    pid = start_detached(
        ["netns", "capture", "--lab", lab, capture.link, "-o", capture.file, *overwrite],
        what="a capture",
        log_path=log_path,
        is_ready=lambda _pid: "capturing " in log_path.read_text(),
        within_s=CAPTURE_WITHIN_S,
    )
    process = ProcessIdentity.of(pid)
    if process is None:
        raise BackendError(f"a capture ended as soon as it had begun; its log is {log_path}")
    return process
