"""Four products of bytes added to each 32-bit lane, by whatever instruction a CPU has for it."""

from __future__ import annotations

from llvmlite import ir

from heddle.tiles.kernels.emit import I8, Code, Value

I16 = ir.IntType(16)


def dot(code: Code, total: Value, codes: Value, digits: Value) -> Value:
    """To each lane its four unsigned codes times its four signed digits, which are in [-64, 64]."""
    kind, bits = total.type, 32 * code.lanes
    if not code.target.triple.startswith("x86"):
        return _plain(code, total, codes, digits)
    if code.target.has("avx512vnni") or (code.lanes == 8 and code.target.has("avxvnni")):
        function = code.intrinsic(f"llvm.x86.avx512.vpdpbusd.{bits}", kind, [kind] * 3)
        return code.block.call(function, [total, codes, digits])
    # Pairs in 16 bits, which 2 · 255 · 64 does not overflow, and those in 32.
    small, wide = ir.VectorType(I8, 4 * code.lanes), ir.VectorType(I16, 2 * code.lanes)
    names = ("llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512")
    if code.lanes == 8:
        names = ("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd")
    pairs = code.intrinsic(names[0], wide, [small] * 2)
    fours = code.intrinsic(names[1], kind, [wide] * 2)
    products = code.block.call(pairs, [code.block.bitcast(each, small) for each in (codes, digits)])
    return code.block.add(total, code.block.call(fours, [products, ir.Constant(wide, [1] * 2 * code.lanes)]))


def _plain(code: Code, total: Value, codes: Value, digits: Value) -> Value:
    """With shifts and multiplications that every CPU has."""
    block, kind = code.block, total.type

    def constant(number: int) -> Value:
        return ir.Constant(kind, [number] * code.lanes)

    for place in range(4):
        unsigned = block.and_(block.lshr(codes, constant(8 * place)), constant(255))
        signed = block.ashr(block.shl(digits, constant(24 - 8 * place)), constant(24))
        total = block.add(total, block.mul(unsigned, signed))
    return total
