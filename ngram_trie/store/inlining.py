"""What is made of numba's own parts, so that compiling takes half as long and is done once for a processor: what is
compiled is kept in the user's folder for caches, below the package's version and the processor's name, and survives new
installations. Damaged and foreign files are compiled anew.

Another release of numba may lack one of these parts; then `ngram_trie.store.compiled` does without this module.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import pickle
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from numba.core import event, types
from numba.core.bytecode import FunctionIdentity
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_machinery import register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.typed_passes import NativeLowering, NativeParforLowering

from ngram_trie.store.files import cache_folder

ROOT = __name__.partition(".")[0] + "."

# What is used beside what is imported: if one of these is gone, it is known now and not in the midst of compiling.
for _owner, _name in (
    (CompileResult, "_rebuild"), (CompileResult, "_reduce"), (JITCodeLibrary, "_get_module_for_linking"),
    (JITCodeLibrary, "_optimize_functions"), (JITCodeLibrary, "get_pointer_to_function"),
    (CPUDispatcher, "get_call_template"), (CPUDispatcher, "add_overload"), (Compiler, "define_pipelines"),
    (types, "unliteral"), (event, "register"), (FunctionIdentity, "_unique_ids"),
):  # fmt: skip
    getattr(_owner, _name)


def _number_functions() -> None:
    """Let no function of another process have this one's names. numba numbers functions from 1 in each process, and
    takes constants of a kept function for those of another one of that name: a null pointer, where they are fewer.
    """
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(6), "big"))


_number_functions()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_number_functions)


def keep(dispatcher: Any) -> None:
    """Let what is compiled for a function of `numba.njit` be kept, and found by later processes."""
    dispatcher._cache = _Kept(dispatcher)


def is_kept(dispatcher: Any) -> bool:
    """Whether code of today's sources is kept of a function, for some signature."""
    return bool(dispatcher._cache.is_kept())


def inner(function: Any, options: dict[str, Any]) -> Any:
    """A function that becomes a part of those that call it; see `ngram_trie.store.compiled.kernel`."""
    options = {"nopython": True, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}
    return _Inner(function, targetoptions=options, pipeline_class=_InnerCompiler)


def address_of(dispatcher: Any, signature: Any) -> int:
    """Where the compiled function lies, which C can call."""
    dispatcher.compile(signature)
    made = dispatcher.overloads[signature.args]
    return int(made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name))


class _Watch(event.Listener):
    def __init__(self, seen: Any) -> None:
        self._seen = seen

    def on_start(self, event: Any) -> None:
        is_ours = event.kind == "numba:compile" and event.data["dispatcher"].py_func.__module__.startswith(ROOT)
        self._seen(is_ours)

    def on_end(self, event: Any) -> None:
        return


def watch(seen: Any) -> None:
    """Call seen(is_ours) whenever something is compiled or loaded, with whether a function of ours is compiled."""
    for kind in ("numba:compile", "numba:compiler_lock"):  # the lock is held while something is loaded, too
        event.register(kind, _Watch(seen))


class _Inner(CPUDispatcher):
    def get_call_template(self, args: Any, kws: Any) -> Any:
        """One function for literals and numbers: numba would compile another one for a literal."""
        return super().get_call_template([types.unliteral(arg) for arg in args], kws)

    def add_overload(self, made: Any) -> None:
        self.overloads[tuple(made.signature.args)] = made  # and not in the table of what Python may call


class _InnerLibrary(JITCodeLibrary):
    def finalize(self) -> None:
        """Only linked: optimized it is where all is together, and machine code is made of that alone."""
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def _optimize_functions(self, module: Any) -> None:
        return


class _NoMachineCode:
    def run_pass(self, state: Any) -> bool:
        state.flags.no_compile = True
        state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        super().run_pass(state)  # type: ignore[misc]

        def entry_point(*_: Any) -> None:
            raise TypeError(f"{state.func_id.func_name}: only compiled functions call this")

        state.targetctx.insert_user_function(entry_point, state["cr"].fndesc, [state.library])
        state["cr"] = state["cr"]._replace(cfunc=entry_point)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(_NoMachineCode, NativeLowering):
    _name = "inner_lowering"


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerParforLowering(_NoMachineCode, NativeParforLowering):
    _name = "inner_parfor_lowering"


class _InnerCompiler(Compiler):
    def define_pipelines(self) -> list[Any]:
        (pipeline,) = super().define_pipelines()
        inner = {NativeLowering: _InnerLowering, NativeParforLowering: _InnerParforLowering}
        pipeline.passes = [(inner.get(each, each), why) for each, why in pipeline.passes]
        pipeline.finalize()
        return [pipeline]


class _Kept:
    """What numba asks for a compiled function, and gives it: a file for each signature."""

    def __init__(self, dispatcher: Any) -> None:
        self._function = dispatcher.py_func
        self._name = f"{self._function.__module__}.{self._function.__qualname__}"

    def load_overload(self, signature: Any, context: Any) -> CompileResult | None:
        context.refresh()
        try:
            head, _, data = self._file(signature, context.codegen()).read_bytes().partition(b"\n")
        except OSError:
            return None
        if head == self._head(data):  # else it is of other sources, or damaged
            return CompileResult._rebuild(context, *pickle.loads(data))
        return None

    def save_overload(self, signature: Any, made: Any) -> None:
        if made.library.has_dynamic_globals:  # addresses of this process
            return
        data = dumps(made._reduce())
        file = self._file(signature, made.codegen)
        unfinished = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(self._head(data) + b"\n" + data)
            unfinished.replace(file)
        except OSError as error:
            _say(f"{file.parent}: {error.strerror}: compiled anew in each process; set NGRAM_TRIE_CACHE")

    def is_kept(self) -> bool:
        stamp = _stamp(self._function.__module__).encode()
        return any(file.read_bytes().startswith(stamp) for file in _folder().glob(f"{self._name}-*"))

    def _head(self, data: bytes) -> bytes:
        return f"{_stamp(self._function.__module__)} {hashlib.sha256(data).hexdigest()}".encode()

    def _file(self, signature: Any, codegen: Any) -> Path:
        kind = hashlib.sha256(repr((signature, codegen.magic_tuple())).encode()).hexdigest()[:16]
        return _folder() / f"{self._name}-{kind}"


@functools.cache
def _say(what: str) -> None:
    print(what, file=sys.stderr)


@functools.cache
def _folder() -> Path:
    try:
        package = version("ngram-trie")
    except PackageNotFoundError:
        package = "source"
    cpu = numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name()  # type: ignore[attr-defined]
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return cache_folder() / "compiled" / f"{package}-{python}-numba{numba.__version__}-{cpu}"


@functools.cache
def _stamp(module: str) -> str:
    """Of the sources that a module's compiled functions are made of: its own, those that it takes some from, and this
    one, by which they are compiled.
    """
    found, waiting = {module, __name__}, [module]
    while waiting:
        for value in vars(sys.modules[waiting.pop()]).values():
            of = (value.py_func if isinstance(value, Dispatcher) else value).__module__ if _counts(value) else module
            if of.startswith(ROOT) and of not in found:
                found.add(of)
                waiting.append(of)
    sources = (Path(sys.modules[name].__file__ or "").read_bytes() for name in sorted(found))
    return hashlib.sha256(b"".join(sources)).hexdigest()


def _counts(value: Any) -> bool:
    is_tuple = isinstance(value, type) and issubclass(value, tuple)
    return is_tuple or isinstance(value, Dispatcher | _Intrinsic)
