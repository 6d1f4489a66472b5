"""A compiled graph's shared object, called through its C interface.

torch's own runner holds Python's global lock while a graph runs: a spinning thread gets 1 to 3 % of
its speed. A call through ctypes does not, so that the next step can be prepared meanwhile. The
interface is the documented one of `torch/csrc/inductor/aoti_runtime/interface.h`.

A tensor crosses it as a handle: a pointer to a C++ tensor object on the heap. `Run` takes the
handles of its inputs away and deletes them, so each call makes new ones; the memory that they point
to is shared, never copied.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_bool, c_char_p, c_int32, c_size_t, c_void_p, py_object
from pathlib import Path
from typing import Any

import torch
from torch._C._aoti import (
    alloc_tensors_by_stealing_from_void_ptrs,
    unsafe_alloc_void_ptrs_from_tensors,
)

from neuron_llm.errors import ArtifactError

_DEVICE = b"cpu"
_GET_LAST_ERROR = "GetLastError"
# The last two arguments with which constants are set: `use_inactive` and `validate_full_update`.
_USE_ACTIVE_BUFFER = False
_CHECK_THAT_ALL_ARE_THERE = True

# It keeps the global lock: it touches a Python object.
_capsule_pointer = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Constant(ctypes.Structure):
    """`AOTInductorConstantMapEntry`."""

    _fields_ = (("name", c_char_p), ("handle", c_void_p))


# Functions of the interface by their names after `AOTInductor`, with the types of their arguments.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    _GET_LAST_ERROR: (POINTER(c_char_p),),
    "ModelContainerCreateWithDevice": (POINTER(c_void_p), c_size_t, c_char_p, c_char_p),
    "ModelContainerDelete": (c_void_p,),
    "ModelContainerGetNumConstants": (c_void_p, POINTER(c_size_t)),
    "ModelContainerGetConstantName": (c_void_p, c_size_t, POINTER(c_char_p)),
    "ModelContainerGetConstantOriginalFQN": (c_void_p, c_size_t, POINTER(c_char_p)),
    "ModelContainerUpdateUserManagedConstantBufferPairs": (
        *(c_void_p, POINTER(_Constant), c_size_t, c_bool, c_bool),
    ),
    "ModelContainerGetNumInputs": (c_void_p, POINTER(c_size_t)),
    "ModelContainerGetNumOutputs": (c_void_p, POINTER(c_size_t)),
    "ModelContainerRun": (
        *(c_void_p, POINTER(c_void_p), c_size_t, POINTER(c_void_p), c_size_t, c_void_p, c_void_p),
    ),
}


class SharedObject:
    """One graph, loaded. Calls must not overlap.

    Args:
        path: the shared object; needed on disk only while it is loaded.
        graph_name: for messages.

    Raises:
        ArtifactError: it cannot be loaded.
    """

    def __init__(self, path: Path, graph_name: str) -> None:
        self._name = graph_name
        self._functions = self._load_functions(path)
        container = c_void_p()
        self._call("ModelContainerCreateWithDevice", byref(container), 1, _DEVICE, None)
        self._container = container
        self._num_inputs = self._size("ModelContainerGetNumInputs")
        # A graph that returns nothing has one output, which it never writes.
        self._outputs = (c_void_p * self._size("ModelContainerGetNumOutputs"))()
        self._constants: list[torch.Tensor] = []
        delete = self._functions["ModelContainerDelete"]
        # At the end of the process nothing has to be given back.
        finalizer = weakref.finalize(self, delete, container)
        finalizer.atexit = False

    def constant_names(self) -> dict[str, str]:
        """Return the name of each constant in the graph and its qualified name in the model."""
        names = {}
        for index in range(self._size("ModelContainerGetNumConstants")):
            name, qualified_name = c_char_p(), c_char_p()
            self._call("ModelContainerGetConstantName", self._container, index, byref(name))
            self._call(
                *("ModelContainerGetConstantOriginalFQN", self._container, index),
                byref(qualified_name),
            )
            assert name.value is not None and qualified_name.value is not None
            names[name.value.decode()] = qualified_name.value.decode()
        return names

    def set_constants(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Let the graph read its constants in the memory of these tensors, which stay alive.

        Args:
            tensors: all of them by name in the graph, contiguous, of the compiled shapes and
                dtypes.

        Raises:
            ArtifactError: one is missing.
        """
        # The container never gives its handles back. Behind a handle that does not own the memory,
        # the weights live as long as this object and no longer.
        capsules = unsafe_alloc_void_ptrs_from_tensors([_borrowed(t) for t in tensors.values()])
        entries = (_Constant * len(tensors))(
            *(
                _Constant(name.encode(), _capsule_pointer(capsule, None))
                for name, capsule in zip(tensors, capsules, strict=True)
            )
        )
        try:
            self._call(
                "ModelContainerUpdateUserManagedConstantBufferPairs",
                *(self._container, entries, len(entries)),
                *(_USE_ACTIVE_BUFFER, _CHECK_THAT_ALL_ARE_THERE),
            )
        finally:
            # It has copied the handles; taking ours back deletes them.
            alloc_tensors_by_stealing_from_void_ptrs(capsules)
        self._constants = list(tensors.values())

    def run(self, tensors: list[torch.Tensor]) -> None:
        """Run the graph without holding Python's global lock; it writes into its tensors.

        Args:
            tensors: contiguous, of the compiled shapes and dtypes, in the graph's order.

        Raises:
            ArtifactError: the graph failed.
        """
        # A wrong number would be read past the end of the array.
        assert len(tensors) == self._num_inputs, (len(tensors), self._num_inputs)
        pointers = [_capsule_pointer(c, None) for c in unsafe_alloc_void_ptrs_from_tensors(tensors)]
        handles = (c_void_p * len(pointers))(*pointers)
        self._call(
            *("ModelContainerRun", self._container, handles, len(handles)),
            *(self._outputs, len(self._outputs), None, None),
        )

    def _load_functions(self, path: Path) -> dict[str, Callable[..., int]]:
        try:
            library = ctypes.CDLL(str(path))
            # Older versions of torch keep no text of an error.
            return {
                name: ctypes.CFUNCTYPE(c_int32, *types)((f"AOTInductor{name}", library))
                for name, types in _FUNCTIONS.items()
                if name != _GET_LAST_ERROR or hasattr(library, f"AOTInductor{name}")
            }
        except (OSError, AttributeError) as error:
            raise ArtifactError(
                f"graph `{self._name}` cannot be loaded: {error}",
                hint="compile the artifact again",
            ) from error

    def _size(self, function: str) -> int:
        size = c_size_t()
        self._call(function, self._container, byref(size))
        return size.value

    def _call(self, function: str, *arguments: Any) -> None:
        if self._functions[function](*arguments) == 0:
            return
        raise ArtifactError(
            f"graph `{self._name}` failed in `{function}`: {self._last_error()}",
            hint="compile the artifact again",
        )

    def _last_error(self) -> str:
        """Return what the library says of the last failure in this thread."""
        message = c_char_p()
        if _GET_LAST_ERROR in self._functions:
            self._functions[_GET_LAST_ERROR](byref(message))
        return (message.value or b"see the lines before").decode(errors="replace").strip()


def _borrowed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the same memory that does not keep it alive."""
    assert tensor.is_contiguous() and tensor.numel() > 0
    memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)
