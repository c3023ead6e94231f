"""Memory: blocks by size class, of which free ones are kept for the next result, up to a limit.

Fresh pages are the largest cost of an elementwise operation on large arrays: the system clears them and maps them one
by one. So a block that is released is kept. When more than the limit is kept, the block that has been free for longest
goes. Free blocks hang in two lists: of their class, newest first (its memory is likeliest in a cache), and of all by
age.

    size class   1 to 1024 bytes by 64; above, eight to an octave: at most an eighth of a block is unused
    below 256 K  from the C library, aligned to a cache line
    above        pages of its own; from 4 M on, aligned to large pages, and what is asked for marked for them

Every block has a `HEADER` of 64 bytes before it. Knows no program and no Python.
"""

from __future__ import annotations

from typing import Final

from nxjax.backends.cpu.native.abi import STATISTICS
from nxjax.backends.cpu.native.sync import System, fetch, lock, null, put, swap_if, unlock, word
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value

HEADER: Final = 64
# Of the header: who it is, bytes of the block, what the system gave (address, bytes; 0: the C library's), neighbours.
_MARK, _SIZE, _BASE, _MAPPED, _OLDER, _NEWER, _BELOW, _ABOVE = range(0, 64, 8)
# In use and free: a number that memory does not hold by chance, and the class in the low bits.
_USED: Final = 0x5DA7_10C8_61BE_0000
_FREE: Final = 0x5DA7_10C8_F4EE_0000
_CLASS: Final = 0xFFFF

_SMALL: Final = 1024
_STEP: Final = 64
_CLASSES: Final = _SMALL // _STEP + 37 * 8  # up to 2**47 bytes
_LARGEST: Final = 2**46
_OWN_PAGES: Final = 256 * 1024
_HUGE: Final = 4 * 2**20
_HUGE_PAGE: Final = 2 * 2**20
# A large block may serve for one that is up to two classes smaller.
_SEARCHED: Final = 3

# Of the pool's state; the first words are `STATISTICS`.
_IN_USE, _PEAK, _KEPT, _BLOCKS, _HITS, _MISSES, _LIMIT, _FREE_BLOCKS = range(0, 64, 8)
_LOCK, _OLDEST, _NEWEST, _HEADS = 64, 72, 80, 128
_STATE: Final = "@nx_pool"


def emit(module: LlvmModule, system: System) -> None:
    """Add ``nx_acquire``, ``nx_release``, ``nx_trim``, ``nx_pool_statistics``, ``nx_pool_limit`` and, for forks,
    ``nx_pool_lock`` and ``nx_pool_unlock``."""
    module.globals[_STATE] = f"{_STATE} = internal global [{_HEADS + 8 * _CLASSES} x i8] zeroinitializer, align 64"
    for write in (_class_of, _size_of, _unlink, _map, _unmap, _acquire, _release, _trim, _statistics, _limit, _locks):
        write(module, system)


def _state(f: Function) -> Value:
    return Value(f, "ptr", _STATE)


def _function(module: LlvmModule, name: str, parameters: list[str], result: str, *, seen: bool = False) -> Function:
    f = Function(name, parameters, result, linkage="" if seen else "internal")
    module.add(f)
    return f


def _class_of(module: LlvmModule, _: System) -> None:
    """The class of ``nbytes``.

    Above `_SMALL`, with m = nbytes - 1 in [2**e, 2**(e+1)), the class is that of m's upper three bits below the
    leading one: sizes up to 2**e + (k+1) * 2**(e-3).
    """
    f = _function(module, "nx_class", ["i64"], "i64")
    (n,) = f.arguments
    with f.if_(n.ule(_SMALL)):
        last = f.select(n.eq(0), 0, n - 1)
        f.ret(last.lshr(6))
    m = n - 1
    e = f.constant("i64", 63) - f.intrinsic("ctlz", "i64", m, f.constant("i1", False))
    k = m.lshr(e - 3) & 7
    f.ret((e - 10) * 8 + k + _SMALL // _STEP)


def _size_of(module: LlvmModule, _: System) -> None:
    """The bytes of a block of a class."""
    f = _function(module, "nx_class_size", ["i64"], "i64")
    (c,) = f.arguments
    with f.if_(c.ult(_SMALL // _STEP)):
        f.ret((c + 1) * _STEP)
    above = c - _SMALL // _STEP
    e = above.lshr(3) + 10
    f.ret((f.constant("i64", 1) << e) + (((above & 7) + 1) << (e - 3)))


def _unlink(module: LlvmModule, _: System) -> None:
    """Take a free block out of both lists; the lock is held."""
    f = _function(module, "nx_unlink", ["ptr"], "void")
    (h,) = f.arguments
    state = _state(f)
    head = f.at(f.at(state, _HEADS), word(f, h, _MARK) & _CLASS, 8)
    for back, on, first, last in ((_NEWER, _OLDER, head, None), (_BELOW, _ABOVE, f.at(state, _OLDEST), _NEWEST)):
        before, after = word(f, h, back, "ptr"), word(f, h, on, "ptr")
        here = f.select(before.eq(0), first, f.at(before, on))
        f.store(after, here, 8)
        with f.if_(after.ne(0)):
            put(f, before, after, back)
        if last is not None:
            with f.if_(after.eq(0)):
                put(f, before, state, last)
    put(f, word(f, state, _KEPT) - word(f, h, _SIZE), state, _KEPT)
    put(f, word(f, state, _FREE_BLOCKS) - 1, state, _FREE_BLOCKS)
    f.ret()


def _map(module: LlvmModule, system: System) -> None:
    """A fresh block with its header for ``nbytes`` of its ``size``, or null."""
    f = _function(module, "nx_map", ["i64", "i64", "i64"], "ptr")
    size, kind, nbytes = f.arguments
    out = f.alloca("ptr", align=8)
    if system.map_flags:
        with f.if_(size.uge(_OWN_PAGES)):
            huge = size.uge(_HUGE)
            align = f.select(huge, f.constant("i64", _HUGE_PAGE), system.page) if system.huge_advice else None
            align = f.constant("i64", system.page) if align is None else align
            total = size + align + HEADER
            nowhere, zero = null(f), f.constant("i64", 0)
            protection, flags = f.constant("i32", 3), f.constant("i32", system.map_flags)
            base = f.call("mmap", "ptr", nowhere, total, protection, flags, f.constant("i32", -1), zero)
            at = f.cast("ptrtoint", base, "i64")
            with f.if_(at.eq(-1)):
                f.ret(null(f))
            start = (at + HEADER + align - 1) & (f.constant("i64", 0) - align)
            block = f.cast("inttoptr", start, "ptr")
            if system.huge_advice:
                with f.if_(huge):
                    # Whole large pages: the rest stays in small ones, of which those that nobody reaches are not there.
                    whole = nbytes & -_HUGE_PAGE
                    f.call("madvise", "i32", block, whole, f.constant("i32", system.huge_advice))
            _head(f, block, size, kind, base, total)
            f.ret(block)
    total = size + HEADER
    take = system.symbols[0]
    if take == "posix_memalign":
        failed = f.call(take, "i32", out, f.constant("i64", 64), total)
        with f.if_(failed.ne(0)):
            f.ret(null(f))
        base = f.load("ptr", out, 8)
    else:
        base = f.call(take, "ptr", total, f.constant("i64", 64))
        with f.if_(base.eq(0)):
            f.ret(null(f))
    block = f.at(base, HEADER)
    _head(f, block, size, kind, base, f.constant("i64", 0))
    f.ret(block)


def _head(f: Function, block: Value, size: Value, kind: Value, base: Value, mapped: Value) -> None:
    h = f.at(block, -HEADER)
    put(f, kind | _USED, h, _MARK)
    put(f, size, h, _SIZE)
    put(f, base, h, _BASE)
    put(f, mapped, h, _MAPPED)


def _unmap(module: LlvmModule, system: System) -> None:
    """Give a chain of free blocks, linked by `_OLDER`, back to the system."""
    f = _function(module, "nx_unmap", ["ptr"], "void")
    (first,) = f.arguments
    cursor = f.alloca("ptr", align=8)
    f.store(first, cursor, 8)
    f.label("turn")
    h = f.load("ptr", cursor, 8)
    f.branch_if(h.eq(0), "done", "one")
    f.label("one")
    f.store(word(f, h, _OLDER, "ptr"), cursor, 8)
    base, mapped = word(f, h, _BASE, "ptr"), word(f, h, _MAPPED)
    put(f, 0, h, _MARK)
    f.branch_if(mapped.eq(0), "heap", "pages")
    f.label("pages")
    if system.map_flags:
        f.call("munmap", "i32", base, mapped)
    f.branch("turn")
    f.label("heap")
    f.call(system.symbols[1], "void", base)
    f.branch("turn")
    f.label("done")
    f.ret()


def _acquire(module: LlvmModule, system: System) -> None:
    """``ptr nx_acquire(i64 nbytes)``: a kept block, or a fresh one; null where there is no memory."""
    f = _function(module, "nx_acquire", ["i64"], "ptr", seen=True)
    (n,) = f.arguments
    state = _state(f)
    with f.if_(n.ugt(_LARGEST)):
        f.ret(null(f))
    kind = f.call("nx_class", "i64", n)
    size = f.call("nx_class_size", "i64", kind)
    heads = f.at(state, _HEADS)
    lock(f, f.at(state, _LOCK), system)
    own = f.load("ptr", f.at(heads, kind, 8), 8)
    place = f.block
    f.branch_if(own.eq(0) & size.uge(_OWN_PAGES), "search", "found")
    f.label("search")
    larger = own
    for step in reversed(range(1, _SEARCHED)):
        head = f.load("ptr", f.at(heads, kind + step, 8), 8)
        larger = f.select(head.eq(0), larger, head)
    searched = f.block
    f.label("found")
    h = f.phi("ptr", [(own, place), (larger, searched)])
    f.branch_if(h.eq(0), "miss", "hit")

    f.label("hit")
    f.call("nx_unlink", "void", h)
    put(f, (word(f, h, _MARK) & _CLASS) | _USED, h, _MARK)
    put(f, word(f, state, _HITS) + 1, state, _HITS)
    _count(f, word(f, h, _SIZE))
    unlock(f, f.at(state, _LOCK))
    f.ret(f.at(h, HEADER))

    f.label("miss")
    unlock(f, f.at(state, _LOCK))
    first = f.call("nx_map", "ptr", size, kind, n)
    f.branch_if(first.eq(0), "again", "made")
    f.label("again")  # all that is kept may be what is missing
    f.call("nx_trim", "void", f.constant("i64", 0))
    second = f.call("nx_map", "ptr", size, kind, n)
    f.branch_if(second.eq(0), "none", "made")
    f.label("made")
    fresh = f.phi("ptr", [(first, "miss"), (second, "again")])
    lock(f, f.at(state, _LOCK), system)
    put(f, word(f, state, _MISSES) + 1, state, _MISSES)
    _count(f, size)
    unlock(f, f.at(state, _LOCK))
    f.ret(fresh)
    f.label("none")
    f.ret(null(f))


def _count(f: Function, size: Value) -> None:
    """One more block in use; the lock is held."""
    state = _state(f)
    used = word(f, state, _IN_USE) + size
    put(f, used, state, _IN_USE)
    put(f, f.intrinsic("umax", "i64", used, word(f, state, _PEAK)), state, _PEAK)
    put(f, word(f, state, _BLOCKS) + 1, state, _BLOCKS)


def _release(module: LlvmModule, system: System) -> None:
    """``i64 nx_release(ptr)``: 0; -1: this is no block of the pool's; -2: it is free already."""
    f = _function(module, "nx_release", ["ptr"], "i64", seen=True)
    (block,) = f.arguments
    state = _state(f)
    with f.if_(block.eq(0)):
        f.ret(f.constant("i64", 0))
    with f.if_((f.cast("ptrtoint", block, "i64") & 63).ne(0)):
        f.ret(f.constant("i64", -1))
    h = f.at(block, -HEADER)
    mark = word(f, h, _MARK)
    kind = mark & _CLASS
    with f.if_((mark ^ kind).ne(_USED)):
        f.ret(f.select((mark ^ kind).eq(_FREE), f.constant("i64", -2), -1))
    # Of two threads that release one block, one is told that it is free.
    with f.if_(~swap_if(f, h, mark, kind | _FREE)):
        f.ret(f.constant("i64", -2))
    size = word(f, h, _SIZE)
    lock(f, f.at(state, _LOCK), system)
    put(f, word(f, state, _IN_USE) - size, state, _IN_USE)
    put(f, word(f, state, _BLOCKS) - 1, state, _BLOCKS)
    limit = word(f, state, _LIMIT)
    with f.if_(size.ugt(limit)):
        unlock(f, f.at(state, _LOCK))
        put(f, 0, h, _OLDER)
        f.call("nx_unmap", "void", h)
        f.ret(f.constant("i64", 0))
    head = f.at(f.at(state, _HEADS), kind, 8)
    newest = f.load("ptr", head, 8)
    put(f, newest, h, _OLDER)
    put(f, null(f), h, _NEWER)
    with f.if_(newest.ne(0)):
        put(f, h, newest, _NEWER)
    f.store(h, head, 8)
    last = word(f, state, _NEWEST, "ptr")
    put(f, last, h, _BELOW)
    put(f, null(f), h, _ABOVE)
    f.store(h, f.select(last.eq(0), f.at(state, _OLDEST), f.at(last, _ABOVE)), 8)
    put(f, h, state, _NEWEST)
    kept = word(f, state, _KEPT) + size
    put(f, kept, state, _KEPT)
    put(f, word(f, state, _FREE_BLOCKS) + 1, state, _FREE_BLOCKS)
    unlock(f, f.at(state, _LOCK))
    with f.if_(kept.ugt(limit)):
        f.call("nx_trim", "void", limit)
    f.ret(f.constant("i64", 0))


def _trim(module: LlvmModule, system: System) -> None:
    """``void nx_trim(i64 target)``: give the oldest free blocks back until ``target`` bytes are kept."""
    f = _function(module, "nx_trim", ["i64"], "void", seen=True)
    (target,) = f.arguments
    state = _state(f)
    chain = f.alloca("ptr", align=8)
    f.store(null(f), chain, 8)
    lock(f, f.at(state, _LOCK), system)
    f.label("turn")
    h = word(f, state, _OLDEST, "ptr")
    f.branch_if(word(f, state, _KEPT).ule(target) | h.eq(0), "done", "one")
    f.label("one")
    f.call("nx_unlink", "void", h)
    put(f, f.load("ptr", chain, 8), h, _OLDER)
    f.store(h, chain, 8)
    f.branch("turn")
    f.label("done")
    unlock(f, f.at(state, _LOCK))
    f.call("nx_unmap", "void", f.load("ptr", chain, 8))
    f.ret()


def _statistics(module: LlvmModule, system: System) -> None:
    """``void nx_pool_statistics(ptr out)``: the words of `STATISTICS`, all of one moment."""
    f = _function(module, "nx_pool_statistics", ["ptr"], "void", seen=True)
    (out,) = f.arguments
    state = _state(f)
    lock(f, f.at(state, _LOCK), system)
    for i in range(len(STATISTICS)):
        put(f, word(f, state, 8 * i), out, 8 * i)
    unlock(f, f.at(state, _LOCK))
    f.ret()


def _limit(module: LlvmModule, system: System) -> None:
    """``void nx_pool_limit(i64 nbytes)``: keep no more than this from now on."""
    f = _function(module, "nx_pool_limit", ["i64"], "void", seen=True)
    (limit,) = f.arguments
    fetch(f, "xchg", f.at(_state(f), _LIMIT), limit)
    f.call("nx_trim", "void", limit)
    f.ret()


def _locks(module: LlvmModule, system: System) -> None:
    """``void nx_pool_lock()`` and ``void nx_pool_unlock()``: around a fork; a child finds no list half mended."""
    f = _function(module, "nx_pool_lock", [], "void", seen=True)
    lock(f, f.at(_state(f), _LOCK), system)
    f.ret()
    g = _function(module, "nx_pool_unlock", [], "void", seen=True)
    unlock(g, g.at(_state(g), _LOCK))
    g.ret()
