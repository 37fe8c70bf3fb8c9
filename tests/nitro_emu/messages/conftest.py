"""The card of the tests of `nitro_emu.aio`, for each module here, too."""

from tests.nitro_emu.aio.conftest import run_dir

__all__ = ["run_dir"]
