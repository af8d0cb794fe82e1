"""How far compiled code reaches, held to memory that ends with the array: one byte more would end the process."""

import ctypes
import mmap

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import heddle.lanes
from heddle.errors import HeddleError
from heddle.lanes import ir
from heddle.lanes.child import in_child
from heddle.lanes.policy.kernels import kernel
from heddle.lanes.reach import IntegerRange, Reach

PAGE = mmap.PAGESIZE
COUNTED = """define void @f(ptr %o, ptr %a, i32 %n) {
entry:
  %guard = icmp sgt i32 %n, 0
  br i1 %guard, label %pre, label %end
pre:
  %w = zext nneg i32 %n to i64
  br label %loop
loop:
  %i = phi i64 [ 0, %pre ], [ %next, %loop ]
  %p = getelementptr inbounds float, ptr %a, i64 %i
  %x = load float, ptr %p, align 4
  %y = fadd float %x, 1.0
  %q = getelementptr inbounds float, ptr %o, i64 %i
  store float %y, ptr %q, align 4
  %next = add nuw nsw i64 %i, 1
  %done = icmp eq i64 %next, %w
  br i1 %done, label %end, label %loop
end:
  ret void
}
"""
# `while (n--) *o++ = *a++;` as it is written: pointers walk, and the test comes first
WALKING = """define void @f(ptr %o, ptr %a, i32 %n) {
entry:
  br label %test
test:
  %left = phi i32 [ %n, %entry ], [ %less, %body ]
  %p = phi ptr [ %a, %entry ], [ %p.next, %body ]
  %q = phi ptr [ %o, %entry ], [ %q.next, %body ]
  %less = add i32 %left, -1
  %none = icmp eq i32 %left, 0
  br i1 %none, label %end, label %body
body:
  %x = load i16, ptr %p, align 2
  store i16 %x, ptr %q, align 2
  %p.next = getelementptr i8, ptr %p, i64 2
  %q.next = getelementptr i8, ptr %q, i64 2
  br label %test
end:
  ret void
}
"""
BACKWARDS = """define void @f(ptr %o, ptr %a, i64 %n) {
entry:
  %guard = icmp sgt i64 %n, 0
  br i1 %guard, label %loop, label %end
loop:
  %i = phi i64 [ %n, %entry ], [ %less, %loop ]
  %less = add nsw i64 %i, -1
  %p = getelementptr double, ptr %a, i64 %less
  %x = load double, ptr %p, align 8
  %k = sub i64 %n, %i
  %q = getelementptr double, ptr %o, i64 %k
  store double %x, ptr %q, align 8
  %more = icmp sgt i64 %i, 1
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""
# o[i] = sum of a[i * n + j] for j < i: rows of a triangle
TRIANGLE = """define void @f(ptr %o, ptr %a, i64 %n) {
entry:
  %guard = icmp sgt i64 %n, 0
  br i1 %guard, label %outer, label %end
outer:
  %i = phi i64 [ 0, %entry ], [ %i.next, %after ]
  %row = mul nsw i64 %i, %n
  %none = icmp eq i64 %i, 0
  br i1 %none, label %after, label %inner
inner:
  %j = phi i64 [ 0, %outer ], [ %j.next, %inner ]
  %s = phi float [ 0.0, %outer ], [ %t, %inner ]
  %k = add nsw i64 %row, %j
  %p = getelementptr inbounds float, ptr %a, i64 %k
  %x = load float, ptr %p, align 4
  %t = fadd float %s, %x
  %j.next = add nuw nsw i64 %j, 1
  %full = icmp eq i64 %j.next, %i
  br i1 %full, label %after, label %inner
after:
  %sum = phi float [ 0.0, %outer ], [ %t, %inner ]
  %q = getelementptr inbounds float, ptr %o, i64 %i
  store float %sum, ptr %q, align 4
  %i.next = add nuw nsw i64 %i, 1
  %done = icmp eq i64 %i.next, %n
  br i1 %done, label %end, label %outer
end:
  ret void
}
"""
# by four, and what is left over by one, as compilers unroll
UNROLLED = """define void @f(ptr %o, ptr %a, i64 %n) {
entry:
  %guard = icmp eq i64 %n, 0
  br i1 %guard, label %end, label %pre
pre:
  %rest = and i64 %n, 3
  %few = icmp ult i64 %n, 4
  br i1 %few, label %left, label %many
many:
  %most = and i64 %n, -4
  br label %four
four:
  %i = phi i64 [ 0, %many ], [ %i.next, %four ]
  %p = getelementptr inbounds [4 x i32], ptr %a, i64 0, i64 %i
  %x = load <4 x i32>, ptr %p, align 4
  %q = getelementptr inbounds i32, ptr %o, i64 %i
  store <4 x i32> %x, ptr %q, align 4
  %i.next = add nuw i64 %i, 4
  %done = icmp eq i64 %i.next, %most
  br i1 %done, label %left, label %four
left:
  %from = phi i64 [ 0, %pre ], [ %most, %four ]
  %nothing = icmp eq i64 %rest, 0
  br i1 %nothing, label %end, label %one
one:
  %j = phi i64 [ %from, %left ], [ %j.next, %one ]
  %k = phi i64 [ 0, %left ], [ %k.next, %one ]
  %pj = getelementptr inbounds i32, ptr %a, i64 %j
  %y = load i32, ptr %pj, align 4
  %qj = getelementptr inbounds i32, ptr %o, i64 %j
  store i32 %y, ptr %qj, align 4
  %j.next = add nuw i64 %j, 1
  %k.next = add nuw i64 %k, 1
  %over = icmp eq i64 %k.next, %rest
  br i1 %over, label %end, label %one
end:
  ret void
}
"""
MOVED = """declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define void @f(ptr %o, ptr %a, i64 %n) {
  %m = shl i64 %n, 2
  call void @llvm.memcpy.p0.p0.i64(ptr %o, ptr %a, i64 %m, i1 false)
  ret void
}
"""
CLAMPED = COUNTED.replace("%w = zext nneg i32 %n to i64", "%c = call i32 @llvm.umin.i32(i32 %n, i32 7)\n  "
                          "%w = zext nneg i32 %c to i64") + "declare i32 @llvm.umin.i32(i32, i32)\n"  # fmt: skip
LOOPS = {
    "counted": (COUNTED, np.float32, lambda n: (4 * n, 4 * n)),
    "walking": (WALKING, np.int16, lambda n: (2 * n, 2 * n)),
    "backwards": (BACKWARDS, np.float64, lambda n: (8 * n, 8 * n)),
    "triangle": (TRIANGLE, np.float32, lambda n: (4 * n, 4 * ((n - 1) * n + n - 1) if n > 1 else 0)),
    "unrolled": (UNROLLED, np.int32, lambda n: (4 * n, 4 * n)),
    "moved": (MOVED, np.int32, lambda n: (4 * n, 4 * n)),
    "clamped": (CLAMPED, np.float32, lambda n: (4 * min(n, 7), 4 * min(n, 7))),
}


def before_the_end(size, kind=np.uint8):
    """An array whose last byte is the last of its memory; the page behind it cannot be touched."""
    pages = -(-size // PAGE) + 1
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    whole = np.frombuffer(memory, np.uint8)
    protect = ctypes.CDLL(None).mprotect
    assert protect(ctypes.c_void_p(whole.ctypes.data + pages * PAGE), ctypes.c_size_t(PAGE), 0) == 0
    return whole[pages * PAGE - size : pages * PAGE].view(kind)


def survives(work):
    def tried():
        work()
        yield b"done"

    return in_child(tried) == b"done"


@pytest.mark.parametrize("name", LOOPS)
def test_an_array_as_long_as_what_is_reached_is_enough_and_any_shorter_is_refused(name):
    text, kind, wanted = LOOPS[name]
    f = heddle.lanes.compile(text, seconds=0.2, method="llvm")
    for n in (0, 1, 2, 3, 4, 5, 8, 11, 64):
        assert f._needed((n,)) == tuple(IntegerRange(0, size) for size in wanted(n)), n
        out, given = (before_the_end(size, kind) for size in wanted(n))
        assert survives(lambda out=out, given=given, n=n: f(out, given, n)), n
        for place in (0, 1):
            arrays = [np.zeros(size // kind().itemsize, kind) for size in wanted(n)]  # type: ignore[attr-defined]
            if arrays[place].size:
                arrays[place] = arrays[place][:-1]
                with pytest.raises(HeddleError, match=f"for argument {place + 1}"):
                    f(*arrays, n)


def test_the_oracle_notices_a_byte_too_many():
    f = heddle.lanes.compile(COUNTED, seconds=0.2, method="llvm")
    short, enough = before_the_end(36, np.float32), np.zeros(10, np.float32)
    assert not survives(lambda: f(short.ctypes.data, enough.ctypes.data, 10))


def test_functions_made_at_random_stay_within_their_reach():
    for seed in (*range(200, 225), 298):  # the last with pointers in a vector
        made = kernel(seed, size=1 + seed % 3)
        parsed = ir.parse_llvm(made.text)
        ir.optimize(parsed, slp=True)
        text = ir.named(parsed)
        module = ir.take_apart(text)
        (function,) = module.functions
        scalar = ir.take_apart(ir.named(ir.parse_llvm(made.text)))
        reach = Reach(function, module, Reach(scalar.functions[0], scalar))
        spans = reach.needed((3,) * sum(function.types[a][0] == "i" for a in function.arguments))
        assert all(span is not None and span.least == 0 for span in spans), seed
        kinds = [function.types[a] for a in function.arguments]
        loaded = ir.load(ir.parse_llvm(text))
        arrays = [before_the_end(span.most) for span in spans]
        numbers = {"float": ctypes.c_float, "double": ctypes.c_double}
        call = ctypes.CFUNCTYPE(
            None, *(ctypes.c_void_p if k == "ptr" else numbers.get(k, ctypes.c_int64) for k in kinds)
        )
        call = call(loaded.get_function_address(function.name))
        given = iter(arrays)
        arguments = [next(given).ctypes.data if k == "ptr" else 3 for k in kinds]
        assert survives(lambda call=call, arguments=arguments: call(*arguments)), seed


REFUSED = {
    "an index from memory": COUNTED.replace(
        "%q = getelementptr inbounds float, ptr %o, i64 %i",
        "%h = load i64, ptr %p, align 4\n  %q = getelementptr inbounds float, ptr %o, i64 %h",
    ),
    "a loop that ends by what it reads": """define void @f(ptr %o, ptr %a, i32 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %p = getelementptr i8, ptr %o, i64 %i
  %x = load i8, ptr %p, align 1
  store i8 1, ptr %p, align 1
  %next = add i64 %i, 1
  %done = icmp eq i8 %x, 0
  br i1 %done, label %end, label %loop
end:
  ret void
}
""",
    "a count from memory": COUNTED.replace("%w = zext nneg i32 %n to i64", "%w = load i64, ptr %a, align 8"),
    "a pointer in memory": """define void @f(ptr %o, ptr %a, i32 %n) {
  %p = load ptr, ptr %o, align 8
  store i8 1, ptr %p, align 1
  ret void
}
""",
    "a pointer that is kept": """@kept = global ptr null
define void @f(ptr %o, ptr %a, i32 %n) {
  store ptr %o, ptr @kept, align 8
  ret void
}
""",
    "one of two pointers": """define void @f(ptr %o, ptr %a, i32 %n) {
  %c = icmp sgt i32 %n, 3
  %p = select i1 %c, ptr %o, ptr %a
  store i8 1, ptr %p, align 1
  ret void
}
""",
    "a step that jumps over the end": COUNTED.replace("add nuw nsw i64 %i, 1", "add i64 %i, 3"),
    "as a number": """define i64 @f(ptr %o, ptr %a, i32 %n) {
  %x = ptrtoint ptr %o to i64
  %y = add i64 %x, 8
  %p = inttoptr i64 %y to ptr
  store i8 1, ptr %p, align 1
  ret i64 %x
}
""",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_bounded_takes_no_array(name):
    f = heddle.lanes.compile(REFUSED[name], seconds=0.2, method="llvm")
    kinds = {"float": np.float32, "i8": np.uint8}
    array = next((np.zeros(64, kind) for word, kind in kinds.items() if f" {word}" in REFUSED[name]), np.zeros(64))
    with pytest.raises(HeddleError, match="not known before the call") as caught:
        f(array, array, 7)
    assert "ctypes.data" in caught.value.hint


def test_negative_offsets_are_in_front_of_an_array():
    text = "define void @f(ptr %o) {\n  %p = getelementptr i8, ptr %o, i64 -4\n  store i32 1, ptr %p\n  ret void\n}"
    f = heddle.lanes.compile(text)
    with pytest.raises(HeddleError, match="bytes -4 to 0"):
        f(np.zeros(9, np.int32))


ONE = (
    "define void @f(ptr %o, ptr %a) {\n  %x = load i32, ptr %a, align 4\n  store i32 %x, ptr %o, align 4\n  ret void\n}"
)


@pytest.mark.parametrize(
    ("out", "given", "what"),
    [
        (np.zeros(1, np.float32), np.zeros(1, np.int32), "float32 for argument 1"),
        (np.zeros(1, np.int32), np.zeros(1, np.int64), "int64 for argument 2"),
        (np.zeros(1, ">i4"), np.zeros(1, np.int32), ">i4 for argument 1"),
        (np.zeros(0, np.int32), np.zeros(1, np.int32), "0 bytes"),
        (np.frombuffer(bytes(4), np.int32), np.zeros(1, np.int32), "read-only"),
        (np.zeros(4, np.int32)[::2], np.zeros(1, np.int32), "gaps"),
        (np.zeros(9, np.uint8)[1:5].view(np.int32), np.zeros(1, np.int32), "address"),
        ([1], np.zeros(1, np.int32), "list"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_array_of_another_kind_is_refused(out, given, what):
    f = heddle.lanes.compile(ONE)
    with pytest.raises(HeddleError, match=what) as caught:
        f(out, given)
    assert all((caught.value.why, caught.value.hint))
    f(np.zeros(1, np.uint32), np.frombuffer(bytes(4), np.int32))  # reading needs no right to write
