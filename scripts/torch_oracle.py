"""python -m scripts.torch_oracle [TEST ...]: torch's own tests of process groups, of the backend srd with four ranks.

torch.testing._internal.distributed.distributed_test, out of the wheel. Its tests are written for backends by name: here
what it says of "gloo" and "mpi" (which together do all that there is on the CPU) holds for srd, too. Prints a line a
test: passed, failed, or why it does not apply: by torch itself, for lack of a GPU for example, or by `NOT_OURS` below.

Ranks are forked, so that they need not import torch each: a test takes one second and not five.

Exit status: 0: all that apply passed; 1: one failed.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import time
import types
import unittest
from pathlib import Path
from typing import Any, Final

MODULE: Final = "torch.testing._internal.distributed.distributed_test"
RANKS: Final = 4
GLOO_ONLY: Final = "torch itself lets only gloo do it (`dist.monitored_barrier`)"
SPARSE: Final = "sparse tensors: not supported; a GroupError says so"
NOT_OURS: Final = {
    "test_monitored_barrier_failure_order": GLOO_ONLY,
    "test_monitored_barrier_gloo": GLOO_ONLY,
    "test_monitored_barrier_gloo_rank_0_timeout": GLOO_ONLY,
    "test_monitored_barrier_gloo_subgroup": GLOO_ONLY,
    "test_monitored_barrier_wait_all_ranks": GLOO_ONLY,
    "test_sparse_all_reduce_sum": SPARSE,
}
"""Tests that do not apply, and why."""


class Widened(ast.NodeTransformer):
    """What holds for gloo or mpi holds for this backend."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Let tests of groups run with four ranks, as they do for mpi: the groups have two."""
        node.decorator_list = [each for each in node.decorator_list if ast.unparse(each) != "skip_if_small_worldsize"]
        self.generic_visit(node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Decide comparisons of BACKEND with these two."""
        text, operator = ast.unparse(node), node.ops[0]
        if text.startswith("BACKEND ") and text.endswith(("'gloo'", "'mpi'")):
            return ast.Constant(isinstance(operator, ast.Eq))
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Add this backend where a decorator lists gloo."""
        if ast.unparse(node.func) == "require_backend_is_available" and isinstance(node.args[0], ast.Set):
            backends = node.args[0].elts
            backends += [ast.Constant("srd")] if any(ast.unparse(each) == "'gloo'" for each in backends) else []
        self.generic_visit(node)
        return node


def load() -> Any:
    """Return torch's module of tests, widened."""
    os.environ |= {"BACKEND": "srd", "WORLD_SIZE": str(RANKS), "TEMP_DIR": os.environ.get("TEMP_DIR", "/tmp")}  # noqa: S108
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    from torch.testing._internal.common_distributed import DistTestCases  # noqa: PLC0415 - it reads these

    import srd.torch  # noqa: F401, PLC0415 - registers the backend, in torch

    for backends in DistTestCases.backend_feature.values():
        backends.add("srd")
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{MODULE}: not in this build of torch")
    tree = ast.fix_missing_locations(Widened().visit(ast.parse(Path(spec.origin).read_text())))
    module = types.ModuleType(MODULE)
    module.__file__ = spec.origin
    sys.modules[MODULE] = module
    exec(compile(tree, spec.origin, "exec", dont_inherit=True), vars(module))  # noqa: S102 - torch's own source
    return module


def case(module: Any) -> Any:
    """Return the class of the tests, whose ranks are forked."""
    import torch  # noqa: PLC0415 - after `load`

    def fork(self: Any) -> None:
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    methods = {"_spawn_processes": fork, "__module__": __name__, "setUp": _set_up}
    return type("TestSRD", (module.TestDistBackend, vars(module.DistributedTest)["_DistTestBase"]), methods)


def _set_up(self: Any) -> None:
    super(type(self), self).setUp()
    self._spawn_processes()


class OracleReport(unittest.TestResult):
    """Prints a line for each test."""

    def startTest(self, test: Any) -> None:  # noqa: N802
        super().startTest(test)
        self._began = time.monotonic()

    def _say(self, test: Any, what: str) -> None:
        name = test.id().rpartition(".")[2]
        print(f"{name}: {what} ({time.monotonic() - self._began:.1f} s)", flush=True)

    def addSuccess(self, test: Any) -> None:  # noqa: N802
        self.passed = getattr(self, "passed", 0) + 1
        self._say(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self._say(test, f"does not apply: {reason}")

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        self._say(test, f"FAILED\n{self.failures[-1][1]}")

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802
        super().addError(test, err)
        self._say(test, f"FAILED\n{self.errors[-1][1]}")


def main() -> int:
    """Run all tests, or those that are named."""
    tests = case(load())
    for name, reason in NOT_OURS.items():
        setattr(tests, name, unittest.skip(reason)(getattr(tests, name)))
    loader = unittest.defaultTestLoader
    names = sys.argv[1:] or loader.getTestCaseNames(tests)
    report = OracleReport()
    unittest.TestSuite(tests(name) for name in names).run(report)
    passed = getattr(report, "passed", 0)
    failed = len(report.failures) + len(report.errors)
    print(f"{passed} passed, {failed} failed, {len(report.skipped)} do not apply")
    return int(failed > 0 or not passed)


if __name__ == "__main__":
    sys.exit(main())
