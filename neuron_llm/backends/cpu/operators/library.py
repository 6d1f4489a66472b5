"""The operator library as a shared object: built by g++, loaded with ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from neuron_llm.backends.cpu.operators.isa import IsaLevel, compiler_flags
from neuron_llm.errors import ArtifactError, CompileError, NeuronLLMError

_CSRC = Path(__file__).resolve().parent / "csrc"
_COMPILER = "g++"
# Fused only where the source says so: what a compiler fuses depends on the code around it, and a
# row's bits must not. `-Wno-psabi` silences a remark on passing vectors between compilers.
_FLAGS = (
    *("-O3", "-std=c++17", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-ffp-contract=off"),
    "-Wno-psabi",
)


class OperatorLibrary:
    """A loaded library. Its calls hold no lock and may overlap.

    Args:
        path: the shared object; torch must have been imported.

    Raises:
        ArtifactError: it cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(str(path))
            self._last_error = self._library.neuron_llm_last_error
        except (OSError, AttributeError) as error:
            raise ArtifactError(
                f"the operator library `{path}` cannot be loaded: {error}",
                hint="compile the artifact again",
            ) from error
        self._last_error.restype = ctypes.c_char_p

    def call(self, operator: str, arguments: ctypes.Structure) -> None:
        """Run an operator without holding Python's global lock.

        Args:
            operator: its name, such as `paged_attention`.
            arguments: its struct in `interface.py`.

        Raises:
            NeuronLLMError: the operator refused its arguments; it has changed nothing.
        """
        function = self._library[f"neuron_llm_{operator}"]
        function.restype = ctypes.c_char_p
        message = function(ctypes.byref(arguments))
        if message is not None:
            raise NeuronLLMError(f"{operator}: {message.decode(errors='replace')}")

    def last_error(self) -> str:
        """Return what the last operator that failed in this thread said, whoever called it."""
        message: bytes = self._last_error()
        return message.decode(errors="replace")


def load_library(path: Path) -> OperatorLibrary:
    """Load a built library; see `OperatorLibrary`."""
    return OperatorLibrary(path)


def library_name(level: IsaLevel, *, compiler_options: Sequence[str] = ()) -> str:
    """Return the name of a level's library without its suffix; a hash of all that it depends on."""
    digest = hashlib.sha256(" ".join([version("torch"), level, *compiler_options]).encode())
    for source in (Path(__file__), Path(__file__).with_name("isa.py"), *_sources()):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return f"libneuron_llm_operators-{digest.hexdigest()[:16]}"


def build_library(
    level: IsaLevel, directory: Path, *, compiler_options: Sequence[str] = ()
) -> Path:
    """Build the library unless the directory has it, and return its path.

    Processes that want the same library at the same time build it once; a killed build leaves no
    library.

    Args:
        level: the instructions that it may use.
        directory: created if missing.
        compiler_options: further options for g++.

    Raises:
        CompileError: there is no g++, or it failed; the message holds what it said.
    """
    name = f"{library_name(level, compiler_options=compiler_options)}.so"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    if path.is_file():
        return path
    with _lock(directory / f"{name}.lock"):
        if not path.is_file():
            with tempfile.TemporaryDirectory(dir=directory) as scratch:
                built = Path(scratch) / name
                _compile([*_FLAGS, *compiler_flags(level), *compiler_options], built)
                os.replace(built, path)
    return path


def _compile(flags: Sequence[str], target: Path) -> None:
    torch = _torch_directory()
    command = [
        *(_COMPILER, "-shared", *flags, "-isystem", str(torch / "include")),
        # Graphs find the loaded library by this name.
        f"-Wl,-soname,{target.name}",
        # Files include those of another folder by their names alone; no system header meets them.
        *("-iquote", str(_CSRC), "-o", str(target)),
        *(str(source) for source in _sources() if source.suffix == ".cpp"),
        *(f"-L{torch / 'lib'}", "-ltorch_cpu"),
    ]
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise CompileError(
            f"no C++ compiler: `{_COMPILER}` cannot be started: {error.strerror}",
            hint="install g++ (Debian: `apt-get install g++`); only `compile` needs it, not `run`",
        ) from error
    if result.returncode != 0:
        raise CompileError(
            f"`{_COMPILER}` could not build the operator library:\n{result.stderr.strip()}"
        )


def _sources() -> list[Path]:
    return sorted(path for path in _CSRC.rglob("*") if path.is_file())


def _torch_directory() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a kernel lock, which ends with its process; others that want it wait."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
