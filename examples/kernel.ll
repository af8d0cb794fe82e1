; Two cross products, o = a x b: straight-line code that `heddle lanes examples/kernel.ll --explain` packs into vectors.
define void @cross_products(ptr noalias %o, ptr noalias %a, ptr noalias %b) {
  %a0.at = getelementptr inbounds float, ptr %a, i64 0
  %a0 = load float, ptr %a0.at, align 4
  %a1.at = getelementptr inbounds float, ptr %a, i64 1
  %a1 = load float, ptr %a1.at, align 4
  %a2.at = getelementptr inbounds float, ptr %a, i64 2
  %a2 = load float, ptr %a2.at, align 4
  %b0.at = getelementptr inbounds float, ptr %b, i64 0
  %b0 = load float, ptr %b0.at, align 4
  %b1.at = getelementptr inbounds float, ptr %b, i64 1
  %b1 = load float, ptr %b1.at, align 4
  %b2.at = getelementptr inbounds float, ptr %b, i64 2
  %b2 = load float, ptr %b2.at, align 4
  %t1 = fmul float %a1, %b2
  %t2 = fmul float %a2, %b1
  %t3 = fsub float %t1, %t2
  %to.o0 = getelementptr inbounds float, ptr %o, i64 0
  store float %t3, ptr %to.o0, align 4
  %t4 = fmul float %a2, %b0
  %t5 = fmul float %a0, %b2
  %t6 = fsub float %t4, %t5
  %to.o1 = getelementptr inbounds float, ptr %o, i64 1
  store float %t6, ptr %to.o1, align 4
  %t7 = fmul float %a0, %b1
  %t8 = fmul float %a1, %b0
  %t9 = fsub float %t7, %t8
  %to.o2 = getelementptr inbounds float, ptr %o, i64 2
  store float %t9, ptr %to.o2, align 4
  %a3.at = getelementptr inbounds float, ptr %a, i64 3
  %a3 = load float, ptr %a3.at, align 4
  %a4.at = getelementptr inbounds float, ptr %a, i64 4
  %a4 = load float, ptr %a4.at, align 4
  %a5.at = getelementptr inbounds float, ptr %a, i64 5
  %a5 = load float, ptr %a5.at, align 4
  %b3.at = getelementptr inbounds float, ptr %b, i64 3
  %b3 = load float, ptr %b3.at, align 4
  %b4.at = getelementptr inbounds float, ptr %b, i64 4
  %b4 = load float, ptr %b4.at, align 4
  %b5.at = getelementptr inbounds float, ptr %b, i64 5
  %b5 = load float, ptr %b5.at, align 4
  %t10 = fmul float %a4, %b5
  %t11 = fmul float %a5, %b4
  %t12 = fsub float %t10, %t11
  %to.o3 = getelementptr inbounds float, ptr %o, i64 3
  store float %t12, ptr %to.o3, align 4
  %t13 = fmul float %a5, %b3
  %t14 = fmul float %a3, %b5
  %t15 = fsub float %t13, %t14
  %to.o4 = getelementptr inbounds float, ptr %o, i64 4
  store float %t15, ptr %to.o4, align 4
  %t16 = fmul float %a3, %b4
  %t17 = fmul float %a4, %b3
  %t18 = fsub float %t16, %t17
  %to.o5 = getelementptr inbounds float, ptr %o, i64 5
  store float %t18, ptr %to.o5, align 4
  ret void
}
