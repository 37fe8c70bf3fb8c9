"""Whose job runs, where, and who gives way: quotas, lending, priorities, preemption, fair sharing, as Kueue has them.

    state = State(settings, flavors=..., queues=..., cohorts=..., local_queues=...)
    state.submit(workload, now=now)
    outcome = cycle(state, now=now)   # pure: who is admitted, who is preempted, who waits and why
    apply(state, outcome, now=now)

Times are seconds from any one moment, amounts are integers: cpu in thousandths of a core, all else in whole units;
`UNLIMITED` is no limit. `answer` takes and returns plain data (JSON), for one rule or a whole cycle.

The rules are Kueue's (kubernetes-sigs/kueue at ff69552e, 0.19), restated; each module names the ones that it holds.
"""

from netns.governance.apply import apply
from netns.governance.cycle import cycle
from netns.governance.model import UNLIMITED
from netns.governance.questions import answer
from netns.governance.settings import Settings
from netns.governance.state import State

__all__ = ["UNLIMITED", "Settings", "State", "answer", "apply", "cycle"]
