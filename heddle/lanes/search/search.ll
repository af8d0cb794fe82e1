; ModuleID = '<string>'
source_filename = "<string>"

%struct.Search = type { ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i32, i64, float, float, ptr }

; Function Attrs: nofree norecurse nosync nounwind optsize memory(read, argmem: readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable
define dso_local void @estimates(ptr noundef readonly captures(none) %0, ptr noundef captures(none) %1, ptr noundef captures(none) %2, ptr noundef captures(none) %3, ptr noundef captures(none) %4) local_unnamed_addr #0 {
  %6 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %7 = load i64, ptr %6, align 8, !tbaa !8
  %8 = icmp sgt i64 %7, 0
  br i1 %8, label %19, label %9

9:                                                ; preds = %19, %5
  %10 = load i64, ptr %0, align 8, !tbaa !14
  %11 = icmp sgt i64 %10, 0
  br i1 %11, label %12, label %26

12:                                               ; preds = %9
  %13 = getelementptr inbounds nuw i8, ptr %0, i64 88
  %14 = load ptr, ptr %13, align 8, !tbaa !15
  %15 = getelementptr inbounds nuw i8, ptr %0, i64 104
  %16 = getelementptr inbounds nuw i8, ptr %0, i64 168
  %17 = getelementptr inbounds nuw i8, ptr %0, i64 112
  %18 = getelementptr inbounds nuw i8, ptr %0, i64 176
  br label %27

19:                                               ; preds = %19, %5
  %20 = phi i64 [ %24, %19 ], [ 0, %5 ]
  %21 = getelementptr inbounds nuw float, ptr %3, i64 %20
  store float 1.000000e+09, ptr %21, align 4, !tbaa !16
  %22 = getelementptr inbounds nuw float, ptr %2, i64 %20
  store float 1.000000e+09, ptr %22, align 4, !tbaa !16
  %23 = getelementptr inbounds nuw float, ptr %4, i64 %20
  store float 0.000000e+00, ptr %23, align 4, !tbaa !16
  %24 = add nuw nsw i64 %20, 1
  %25 = icmp eq i64 %24, %7
  br i1 %25, label %9, label %19, !llvm.loop !18

26:                                               ; preds = %72, %9
  br i1 %8, label %85, label %75

27:                                               ; preds = %72, %12
  %28 = phi i64 [ 0, %12 ], [ %73, %72 ]
  %29 = getelementptr inbounds nuw float, ptr %1, i64 %28
  store float 1.000000e+09, ptr %29, align 4, !tbaa !16
  %30 = getelementptr inbounds nuw i32, ptr %14, i64 %28
  %31 = load i32, ptr %30, align 4, !tbaa !4
  %32 = icmp eq i32 %31, 0
  br i1 %32, label %72, label %33

33:                                               ; preds = %27
  %34 = load ptr, ptr %15, align 8, !tbaa !21
  %35 = getelementptr inbounds nuw i32, ptr %34, i64 %28
  %36 = load i32, ptr %35, align 4, !tbaa !4
  %37 = getelementptr inbounds nuw i8, ptr %35, i64 4
  %38 = load i32, ptr %37, align 4, !tbaa !4
  %39 = icmp slt i32 %36, %38
  br i1 %39, label %40, label %72

40:                                               ; preds = %33
  %41 = load ptr, ptr %16, align 8, !tbaa !22
  %42 = load ptr, ptr %17, align 8, !tbaa !23
  %43 = sext i32 %36 to i64
  %44 = sext i32 %38 to i64
  br label %45

45:                                               ; preds = %59, %40
  %46 = phi i64 [ %43, %40 ], [ %60, %59 ]
  %47 = getelementptr inbounds i32, ptr %42, i64 %46
  %48 = load i32, ptr %47, align 4, !tbaa !4
  %49 = sext i32 %48 to i64
  %50 = getelementptr inbounds i32, ptr %41, i64 %49
  %51 = load i32, ptr %50, align 4, !tbaa !4
  %52 = getelementptr i8, ptr %50, i64 4
  %53 = load i32, ptr %52, align 4, !tbaa !4
  %54 = icmp slt i32 %51, %53
  br i1 %54, label %55, label %59

55:                                               ; preds = %45
  %56 = load ptr, ptr %18, align 8, !tbaa !24
  %57 = sext i32 %51 to i64
  %58 = sext i32 %53 to i64
  br label %62

59:                                               ; preds = %62, %45
  %60 = add nsw i64 %46, 1
  %61 = icmp eq i64 %60, %44
  br i1 %61, label %72, label %45, !llvm.loop !25

62:                                               ; preds = %62, %55
  %63 = phi i64 [ %57, %55 ], [ %70, %62 ]
  %64 = getelementptr inbounds i32, ptr %56, i64 %63
  %65 = load i32, ptr %64, align 4, !tbaa !4
  %66 = sext i32 %65 to i64
  %67 = getelementptr inbounds float, ptr %4, i64 %66
  %68 = load float, ptr %67, align 4, !tbaa !16
  %69 = fadd float %68, 1.000000e+00
  store float %69, ptr %67, align 4, !tbaa !16
  %70 = add nsw i64 %63, 1
  %71 = icmp eq i64 %70, %58
  br i1 %71, label %59, label %62, !llvm.loop !26

72:                                               ; preds = %59, %33, %27
  %73 = add nuw nsw i64 %28, 1
  %74 = icmp eq i64 %73, %10
  br i1 %74, label %26, label %27, !llvm.loop !27

75:                                               ; preds = %85, %26
  %76 = getelementptr inbounds nuw i8, ptr %0, i64 56
  %77 = getelementptr inbounds nuw i8, ptr %0, i64 104
  %78 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %79 = getelementptr inbounds nuw i8, ptr %0, i64 112
  %80 = getelementptr inbounds nuw i8, ptr %0, i64 184
  %81 = getelementptr inbounds nuw i8, ptr %0, i64 168
  %82 = getelementptr inbounds nuw i8, ptr %0, i64 176
  %83 = getelementptr inbounds nuw i8, ptr %0, i64 64
  %84 = getelementptr inbounds nuw i8, ptr %0, i64 72
  br label %96

85:                                               ; preds = %85, %26
  %86 = phi i64 [ %94, %85 ], [ 0, %26 ]
  %87 = getelementptr inbounds nuw float, ptr %4, i64 %86
  %88 = load float, ptr %87, align 4, !tbaa !16
  %89 = fcmp olt float %88, 3.000000e+00
  %90 = fmul float %88, 7.500000e-01
  %91 = select i1 %89, float %90, float 2.250000e+00
  %92 = fcmp olt float %91, 1.000000e+00
  %93 = select i1 %92, float 1.000000e+00, float %91
  store float %93, ptr %87, align 4, !tbaa !16
  %94 = add nuw nsw i64 %86, 1
  %95 = icmp eq i64 %94, %7
  br i1 %95, label %75, label %85, !llvm.loop !28

96:                                               ; preds = %105, %75
  %97 = phi i32 [ 0, %75 ], [ %107, %105 ]
  br i1 %11, label %98, label %104

98:                                               ; preds = %96
  %99 = and i32 %97, 1
  %100 = icmp eq i32 %99, 0
  %101 = load ptr, ptr %76, align 8, !tbaa !29
  %102 = load ptr, ptr %77, align 8, !tbaa !21
  %103 = load ptr, ptr %78, align 8, !tbaa !30
  br label %110

104:                                              ; preds = %105, %96
  ret void

105:                                              ; preds = %205
  %106 = icmp ne i32 %206, 0
  %107 = add nuw nsw i32 %97, 1
  %108 = icmp samesign ult i32 %97, 63
  %109 = select i1 %108, i1 %106, i1 false
  br i1 %109, label %96, label %104, !llvm.loop !31

110:                                              ; preds = %205, %98
  %111 = phi i64 [ 0, %98 ], [ %207, %205 ]
  %112 = phi i32 [ 0, %98 ], [ %206, %205 ]
  %113 = xor i64 %111, -1
  %114 = add nsw i64 %10, %113
  %115 = select i1 %100, i64 %114, i64 %111
  %116 = getelementptr inbounds i32, ptr %101, i64 %115
  %117 = load i32, ptr %116, align 4, !tbaa !4
  %118 = sitofp i32 %117 to float
  %119 = getelementptr inbounds i32, ptr %103, i64 %115
  %120 = load i32, ptr %119, align 4, !tbaa !4
  %121 = icmp eq i32 %120, 0
  br i1 %121, label %122, label %135

122:                                              ; preds = %110
  %123 = getelementptr inbounds i32, ptr %102, i64 %115
  %124 = getelementptr i8, ptr %123, i64 4
  %125 = load i32, ptr %123, align 4, !tbaa !4
  %126 = load i32, ptr %124, align 4, !tbaa !4
  %127 = tail call i32 @llvm.smax.i32(i32 %125, i32 %126)
  %128 = sext i32 %127 to i64
  %129 = icmp slt i32 %125, %126
  br i1 %129, label %130, label %135

130:                                              ; preds = %122
  %131 = sext i32 %125 to i64
  %132 = load ptr, ptr %79, align 8, !tbaa !23
  %133 = load ptr, ptr %80, align 8, !tbaa !32
  %134 = load ptr, ptr %81, align 8, !tbaa !22
  br label %138

135:                                              ; preds = %157, %122, %110
  %136 = phi float [ %118, %110 ], [ %118, %122 ], [ %159, %157 ]
  %137 = fcmp ult float %136, 1.000000e+09
  br i1 %137, label %174, label %205

138:                                              ; preds = %157, %130
  %139 = phi float [ %118, %130 ], [ %159, %157 ]
  %140 = phi i64 [ %131, %130 ], [ %160, %157 ]
  %141 = getelementptr inbounds i32, ptr %132, i64 %140
  %142 = load i32, ptr %141, align 4, !tbaa !4
  %143 = sext i32 %142 to i64
  %144 = getelementptr inbounds i32, ptr %133, i64 %143
  %145 = load i32, ptr %144, align 4, !tbaa !4
  %146 = icmp eq i32 %145, 0
  %147 = select i1 %146, ptr %2, ptr %3
  %148 = getelementptr inbounds i32, ptr %134, i64 %143
  %149 = load i32, ptr %148, align 4, !tbaa !4
  %150 = getelementptr i8, ptr %148, i64 4
  %151 = load i32, ptr %150, align 4, !tbaa !4
  %152 = icmp slt i32 %149, %151
  br i1 %152, label %153, label %157

153:                                              ; preds = %138
  %154 = load ptr, ptr %82, align 8, !tbaa !24
  %155 = sext i32 %149 to i64
  %156 = sext i32 %151 to i64
  br label %162

157:                                              ; preds = %162, %138
  %158 = phi float [ 1.000000e+09, %138 ], [ %171, %162 ]
  %159 = fadd float %139, %158
  %160 = add nsw i64 %140, 1
  %161 = icmp eq i64 %160, %128
  br i1 %161, label %135, label %138

162:                                              ; preds = %162, %153
  %163 = phi i64 [ %155, %153 ], [ %172, %162 ]
  %164 = phi float [ 1.000000e+09, %153 ], [ %171, %162 ]
  %165 = getelementptr inbounds i32, ptr %154, i64 %163
  %166 = load i32, ptr %165, align 4, !tbaa !4
  %167 = sext i32 %166 to i64
  %168 = getelementptr inbounds float, ptr %147, i64 %167
  %169 = load float, ptr %168, align 4, !tbaa !16
  %170 = fcmp olt float %169, %164
  %171 = select i1 %170, float %169, float %164
  %172 = add nsw i64 %163, 1
  %173 = icmp eq i64 %172, %156
  br i1 %173, label %157, label %162, !llvm.loop !33

174:                                              ; preds = %135
  %175 = getelementptr inbounds float, ptr %1, i64 %115
  %176 = load float, ptr %175, align 4, !tbaa !16
  %177 = fadd float %176, 0xBF1A36E2E0000000
  %178 = fcmp ult float %136, %177
  br i1 %178, label %179, label %205

179:                                              ; preds = %174
  store float %136, ptr %175, align 4, !tbaa !16
  %180 = load ptr, ptr %83, align 8, !tbaa !34
  %181 = getelementptr inbounds i32, ptr %180, i64 %115
  %182 = load i32, ptr %181, align 4, !tbaa !4
  %183 = icmp slt i32 %182, 0
  br i1 %183, label %205, label %184

184:                                              ; preds = %179
  %185 = zext nneg i32 %182 to i64
  %186 = getelementptr inbounds nuw float, ptr %4, i64 %185
  %187 = load float, ptr %186, align 4, !tbaa !16
  %188 = fdiv float %136, %187
  %189 = getelementptr inbounds nuw float, ptr %2, i64 %185
  %190 = load float, ptr %189, align 4, !tbaa !16
  %191 = fcmp olt float %188, %190
  br i1 %191, label %192, label %193

192:                                              ; preds = %184
  store float %188, ptr %189, align 4, !tbaa !16
  br label %193

193:                                              ; preds = %192, %184
  %194 = load ptr, ptr %84, align 8, !tbaa !35
  %195 = getelementptr inbounds i32, ptr %194, i64 %115
  %196 = load i32, ptr %195, align 4, !tbaa !4
  %197 = icmp eq i32 %196, 0
  br i1 %197, label %205, label %198

198:                                              ; preds = %193
  %199 = load float, ptr %186, align 4, !tbaa !16
  %200 = fdiv float %136, %199
  %201 = getelementptr inbounds nuw float, ptr %3, i64 %185
  %202 = load float, ptr %201, align 4, !tbaa !16
  %203 = fcmp olt float %200, %202
  br i1 %203, label %204, label %205

204:                                              ; preds = %198
  store float %200, ptr %201, align 4, !tbaa !16
  br label %205

205:                                              ; preds = %204, %198, %193, %179, %174, %135
  %206 = phi i32 [ %112, %135 ], [ %112, %174 ], [ 1, %193 ], [ 1, %198 ], [ 1, %204 ], [ 1, %179 ]
  %207 = add nuw nsw i64 %111, 1
  %208 = icmp eq i64 %207, %10
  br i1 %208, label %105, label %110, !llvm.loop !36
}

; Function Attrs: nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.start.p0(ptr captures(none)) #1

; Function Attrs: nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.end.p0(ptr captures(none)) #1

; Function Attrs: nofree nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable
define dso_local i64 @search(ptr noundef %0, ptr noundef readonly captures(none) %1, ptr noundef %2, ptr noundef captures(none) %3) local_unnamed_addr #2 {
  %5 = alloca %struct.Search, align 8
  %6 = alloca [19 x ptr], align 16
  %7 = alloca [4 x ptr], align 16
  %8 = load i64, ptr %0, align 8, !tbaa !14
  %9 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %10 = load i64, ptr %9, align 8, !tbaa !37
  %11 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %12 = load i64, ptr %11, align 8, !tbaa !8
  %13 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %14 = load i64, ptr %13, align 8, !tbaa !38
  %15 = getelementptr inbounds nuw i8, ptr %0, i64 48
  %16 = load i64, ptr %15, align 8, !tbaa !39
  %17 = getelementptr inbounds nuw i8, ptr %0, i64 288
  %18 = load ptr, ptr %17, align 8, !tbaa !40
  call void @llvm.lifetime.start.p0(ptr nonnull %5) #6
  %19 = getelementptr inbounds nuw i8, ptr %5, i64 8
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(224) %19, i8 0, i64 224, i1 false)
  store ptr %0, ptr %5, align 8, !tbaa !41
  %20 = getelementptr inbounds nuw i8, ptr %5, i64 64
  store ptr %2, ptr %20, align 8, !tbaa !43
  call void @llvm.lifetime.start.p0(ptr nonnull %6) #6
  %21 = getelementptr inbounds nuw i8, ptr %5, i64 8
  store ptr %21, ptr %6, align 16, !tbaa !44
  %22 = getelementptr inbounds nuw i8, ptr %6, i64 8
  %23 = getelementptr inbounds nuw i8, ptr %5, i64 16
  store ptr %23, ptr %22, align 8, !tbaa !44
  %24 = getelementptr inbounds nuw i8, ptr %6, i64 16
  %25 = getelementptr inbounds nuw i8, ptr %5, i64 24
  store ptr %25, ptr %24, align 16, !tbaa !44
  %26 = getelementptr inbounds nuw i8, ptr %6, i64 24
  %27 = getelementptr inbounds nuw i8, ptr %5, i64 32
  store ptr %27, ptr %26, align 8, !tbaa !44
  %28 = getelementptr inbounds nuw i8, ptr %6, i64 32
  %29 = getelementptr inbounds nuw i8, ptr %5, i64 40
  store ptr %29, ptr %28, align 16, !tbaa !44
  %30 = getelementptr inbounds nuw i8, ptr %6, i64 40
  %31 = getelementptr inbounds nuw i8, ptr %5, i64 48
  store ptr %31, ptr %30, align 8, !tbaa !44
  %32 = getelementptr inbounds nuw i8, ptr %6, i64 48
  %33 = getelementptr inbounds nuw i8, ptr %5, i64 56
  store ptr %33, ptr %32, align 16, !tbaa !44
  %34 = getelementptr inbounds nuw i8, ptr %6, i64 56
  %35 = getelementptr inbounds nuw i8, ptr %5, i64 72
  store ptr %35, ptr %34, align 8, !tbaa !44
  %36 = getelementptr inbounds nuw i8, ptr %6, i64 64
  %37 = getelementptr inbounds nuw i8, ptr %5, i64 80
  store ptr %37, ptr %36, align 16, !tbaa !44
  %38 = getelementptr inbounds nuw i8, ptr %6, i64 72
  %39 = getelementptr inbounds nuw i8, ptr %5, i64 88
  store ptr %39, ptr %38, align 8, !tbaa !44
  %40 = getelementptr inbounds nuw i8, ptr %6, i64 80
  %41 = getelementptr inbounds nuw i8, ptr %5, i64 96
  store ptr %41, ptr %40, align 16, !tbaa !44
  %42 = getelementptr inbounds nuw i8, ptr %6, i64 88
  %43 = getelementptr inbounds nuw i8, ptr %5, i64 104
  store ptr %43, ptr %42, align 8, !tbaa !44
  %44 = getelementptr inbounds nuw i8, ptr %6, i64 96
  %45 = getelementptr inbounds nuw i8, ptr %5, i64 112
  store ptr %45, ptr %44, align 16, !tbaa !44
  %46 = getelementptr inbounds nuw i8, ptr %6, i64 104
  %47 = getelementptr inbounds nuw i8, ptr %5, i64 120
  store ptr %47, ptr %46, align 8, !tbaa !44
  %48 = getelementptr inbounds nuw i8, ptr %6, i64 112
  %49 = getelementptr inbounds nuw i8, ptr %5, i64 128
  store ptr %49, ptr %48, align 16, !tbaa !44
  %50 = getelementptr inbounds nuw i8, ptr %6, i64 120
  %51 = getelementptr inbounds nuw i8, ptr %5, i64 136
  store ptr %51, ptr %50, align 8, !tbaa !44
  %52 = getelementptr inbounds nuw i8, ptr %6, i64 128
  %53 = getelementptr inbounds nuw i8, ptr %5, i64 144
  store ptr %53, ptr %52, align 16, !tbaa !44
  %54 = getelementptr inbounds nuw i8, ptr %6, i64 136
  %55 = getelementptr inbounds nuw i8, ptr %5, i64 152
  store ptr %55, ptr %54, align 8, !tbaa !44
  %56 = getelementptr inbounds nuw i8, ptr %6, i64 144
  %57 = getelementptr inbounds nuw i8, ptr %5, i64 160
  store ptr %57, ptr %56, align 16, !tbaa !44
  br label %66

58:                                               ; preds = %66
  call void @llvm.lifetime.start.p0(ptr nonnull %7) #6
  %59 = getelementptr inbounds nuw i8, ptr %5, i64 168
  store ptr %59, ptr %7, align 16, !tbaa !44
  %60 = getelementptr inbounds nuw i8, ptr %7, i64 8
  %61 = getelementptr inbounds nuw i8, ptr %5, i64 176
  store ptr %61, ptr %60, align 8, !tbaa !44
  %62 = getelementptr inbounds nuw i8, ptr %7, i64 16
  %63 = getelementptr inbounds nuw i8, ptr %5, i64 184
  store ptr %63, ptr %62, align 16, !tbaa !44
  %64 = getelementptr inbounds nuw i8, ptr %7, i64 24
  %65 = getelementptr inbounds nuw i8, ptr %5, i64 192
  store ptr %65, ptr %64, align 8, !tbaa !44
  br label %98

66:                                               ; preds = %66, %4
  %67 = phi ptr [ %18, %4 ], [ %76, %66 ]
  %68 = phi i64 [ 0, %4 ], [ %71, %66 ]
  %69 = getelementptr inbounds nuw ptr, ptr %6, i64 %68
  %70 = load ptr, ptr %69, align 8, !tbaa !44
  store ptr %67, ptr %70, align 8, !tbaa !47
  %71 = add nuw nsw i64 %68, 1
  %72 = getelementptr i32, ptr %67, i64 %8
  %73 = getelementptr i32, ptr %72, i64 %10
  %74 = getelementptr i32, ptr %73, i64 %12
  %75 = getelementptr i32, ptr %74, i64 %14
  %76 = getelementptr i8, ptr %75, i64 4
  %77 = icmp eq i64 %71, 19
  br i1 %77, label %58, label %66, !llvm.loop !48

78:                                               ; preds = %98
  %79 = load i64, ptr %3, align 8, !tbaa !49
  %80 = icmp sgt i64 %79, 0
  br i1 %80, label %81, label %106

81:                                               ; preds = %78
  %82 = getelementptr inbounds nuw i8, ptr %0, i64 56
  %83 = load ptr, ptr %82, align 8, !tbaa !29
  br label %84

84:                                               ; preds = %84, %81
  %85 = phi i64 [ 0, %81 ], [ %94, %84 ]
  %86 = phi i64 [ 0, %81 ], [ %93, %84 ]
  %87 = getelementptr inbounds nuw i32, ptr %2, i64 %85
  %88 = load i32, ptr %87, align 4, !tbaa !4
  %89 = sext i32 %88 to i64
  %90 = getelementptr inbounds i32, ptr %83, i64 %89
  %91 = load i32, ptr %90, align 4, !tbaa !4
  %92 = sext i32 %91 to i64
  %93 = add nsw i64 %86, %92
  %94 = add nuw nsw i64 %85, 1
  %95 = icmp eq i64 %94, %79
  br i1 %95, label %96, label %84, !llvm.loop !50

96:                                               ; preds = %84
  %97 = load ptr, ptr %35, align 8, !tbaa !51
  br label %124

98:                                               ; preds = %98, %58
  %99 = phi ptr [ %76, %58 ], [ %104, %98 ]
  %100 = phi i64 [ 0, %58 ], [ %103, %98 ]
  %101 = getelementptr inbounds nuw ptr, ptr %7, i64 %100
  %102 = load ptr, ptr %101, align 8, !tbaa !44
  store ptr %99, ptr %102, align 8, !tbaa !47
  %103 = add nuw nsw i64 %100, 1
  %104 = getelementptr inbounds i32, ptr %99, i64 %16
  %105 = icmp eq i64 %103, 4
  br i1 %105, label %78, label %98, !llvm.loop !52

106:                                              ; preds = %124, %78
  %107 = phi i64 [ 0, %78 ], [ %93, %124 ]
  %108 = getelementptr inbounds nuw i8, ptr %5, i64 208
  %109 = load i64, ptr %1, align 8, !tbaa !53
  %110 = icmp sgt i64 %109, 0
  br i1 %110, label %111, label %141

111:                                              ; preds = %106
  %112 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %113 = icmp sgt i64 %8, 0
  %114 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %115 = getelementptr inbounds nuw i8, ptr %5, i64 216
  %116 = getelementptr inbounds nuw i8, ptr %1, i64 40
  %117 = getelementptr inbounds nuw i8, ptr %5, i64 220
  %118 = getelementptr inbounds nuw i8, ptr %0, i64 280
  %119 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %120 = getelementptr inbounds nuw i8, ptr %5, i64 224
  %121 = getelementptr inbounds nuw i8, ptr %5, i64 200
  %122 = getelementptr inbounds nuw i8, ptr %0, i64 56
  %123 = shl nuw i64 %8, 2
  br label %132

124:                                              ; preds = %124, %96
  %125 = phi i64 [ 0, %96 ], [ %130, %124 ]
  %126 = getelementptr inbounds nuw i32, ptr %2, i64 %125
  %127 = load i32, ptr %126, align 4, !tbaa !4
  %128 = sext i32 %127 to i64
  %129 = getelementptr inbounds i32, ptr %97, i64 %128
  store i32 1, ptr %129, align 4, !tbaa !4
  %130 = add nuw nsw i64 %125, 1
  %131 = icmp eq i64 %130, %79
  br i1 %131, label %106, label %124, !llvm.loop !55

132:                                              ; preds = %1227, %111
  %133 = phi i64 [ 0, %111 ], [ %1229, %1227 ]
  %134 = phi i64 [ %107, %111 ], [ %1228, %1227 ]
  %135 = load i64, ptr %108, align 8, !tbaa !56
  %136 = load i64, ptr %112, align 8, !tbaa !57
  %137 = icmp slt i64 %135, %136
  br i1 %137, label %138, label %141

138:                                              ; preds = %132
  br i1 %113, label %139, label %143

139:                                              ; preds = %138
  %140 = load ptr, ptr %43, align 8, !tbaa !58
  call void @llvm.memset.p0.i64(ptr align 4 %140, i8 0, i64 %123, i1 false), !tbaa !4
  br label %143

141:                                              ; preds = %1227, %132, %106
  %142 = phi i64 [ %107, %106 ], [ %1228, %1227 ], [ %134, %132 ]
  call void @llvm.lifetime.end.p0(ptr nonnull %7) #6
  call void @llvm.lifetime.end.p0(ptr nonnull %6) #6
  call void @llvm.lifetime.end.p0(ptr nonnull %5) #6
  ret i64 %142

143:                                              ; preds = %139, %138
  %144 = icmp eq i64 %133, 0
  br i1 %144, label %145, label %146

145:                                              ; preds = %143
  store float 0.000000e+00, ptr %115, align 8, !tbaa !59
  br label %154

146:                                              ; preds = %143
  %147 = and i64 %133, 3
  %148 = getelementptr inbounds nuw float, ptr %114, i64 %147
  %149 = load float, ptr %148, align 4, !tbaa !16
  store float %149, ptr %115, align 8, !tbaa !59
  %150 = and i64 %133, 1
  %151 = icmp eq i64 %150, 0
  br i1 %151, label %154, label %152

152:                                              ; preds = %146
  %153 = load float, ptr %116, align 8, !tbaa !60
  br label %154

154:                                              ; preds = %152, %146, %145
  %155 = phi float [ %153, %152 ], [ 0.000000e+00, %146 ], [ 0.000000e+00, %145 ]
  store float %155, ptr %117, align 4, !tbaa !61
  %156 = load ptr, ptr %118, align 8, !tbaa !62
  %157 = mul nuw nsw i64 %133, 40503
  %158 = load i64, ptr %119, align 8, !tbaa !63
  %159 = srem i64 %157, %158
  %160 = getelementptr inbounds nuw float, ptr %156, i64 %159
  store ptr %160, ptr %120, align 8, !tbaa !64
  %161 = shl nsw i64 %134, 3
  %162 = icmp slt i64 %134, 0
  %163 = icmp sgt i64 %134, 0
  %164 = icmp sgt i64 %134, 0
  br label %165

165:                                              ; preds = %1221, %154
  %166 = phi i32 [ 0, %154 ], [ %1224, %1221 ]
  %167 = load ptr, ptr %5, align 8, !tbaa !41
  %168 = load i32, ptr %121, align 8, !tbaa !65
  %169 = add nsw i32 %168, 1
  store i32 %169, ptr %121, align 8, !tbaa !65
  %170 = getelementptr inbounds nuw i8, ptr %167, i64 32
  %171 = load i64, ptr %170, align 8, !tbaa !66
  %172 = icmp sgt i64 %171, 0
  br i1 %172, label %173, label %181

173:                                              ; preds = %165
  %174 = getelementptr inbounds nuw i8, ptr %167, i64 200
  %175 = load ptr, ptr %174, align 8, !tbaa !67
  %176 = load ptr, ptr %27, align 8, !tbaa !68
  %177 = getelementptr inbounds nuw i8, ptr %167, i64 192
  %178 = load ptr, ptr %177, align 8, !tbaa !69
  %179 = load ptr, ptr %39, align 8
  %180 = load ptr, ptr %41, align 8
  br label %210

181:                                              ; preds = %227, %165
  %182 = phi i64 [ 0, %165 ], [ %228, %227 ]
  %183 = phi i64 [ 0, %165 ], [ %229, %227 ]
  %184 = getelementptr inbounds nuw i8, ptr %167, i64 24
  %185 = load i64, ptr %184, align 8, !tbaa !70
  %186 = icmp sgt i64 %185, 0
  %187 = icmp sgt i64 %183, 0
  %188 = select i1 %186, i1 true, i1 %187
  %189 = icmp sgt i64 %182, 0
  %190 = select i1 %188, i1 true, i1 %189
  br i1 %190, label %193, label %191

191:                                              ; preds = %181
  %192 = load ptr, ptr %33, align 8, !tbaa !71
  br label %482

193:                                              ; preds = %181
  %194 = getelementptr inbounds nuw i8, ptr %167, i64 128
  %195 = getelementptr inbounds nuw i8, ptr %167, i64 120
  %196 = getelementptr inbounds nuw i8, ptr %167, i64 216
  %197 = getelementptr inbounds nuw i8, ptr %167, i64 208
  %198 = getelementptr inbounds nuw i8, ptr %167, i64 224
  %199 = getelementptr inbounds nuw i8, ptr %167, i64 232
  %200 = getelementptr inbounds nuw i8, ptr %167, i64 272
  %201 = getelementptr inbounds nuw i8, ptr %167, i64 136
  %202 = getelementptr inbounds nuw i8, ptr %167, i64 144
  %203 = getelementptr inbounds nuw i8, ptr %167, i64 104
  %204 = getelementptr inbounds nuw i8, ptr %167, i64 112
  %205 = getelementptr inbounds nuw i8, ptr %167, i64 192
  %206 = load i64, ptr %108, align 8
  %207 = load ptr, ptr %25, align 8
  %208 = load ptr, ptr %55, align 8
  %209 = load ptr, ptr %33, align 8
  br label %232

210:                                              ; preds = %227, %173
  %211 = phi i64 [ 0, %173 ], [ %229, %227 ]
  %212 = phi i64 [ 0, %173 ], [ %228, %227 ]
  %213 = phi i64 [ 0, %173 ], [ %230, %227 ]
  %214 = getelementptr inbounds nuw i32, ptr %175, i64 %213
  %215 = load i32, ptr %214, align 4, !tbaa !4
  %216 = sext i32 %215 to i64
  %217 = getelementptr inbounds i32, ptr %176, i64 %216
  store i32 %169, ptr %217, align 4, !tbaa !4
  %218 = getelementptr inbounds i32, ptr %178, i64 %216
  %219 = load i32, ptr %218, align 4, !tbaa !4
  %220 = icmp eq i32 %219, 0
  br i1 %220, label %224, label %221

221:                                              ; preds = %210
  %222 = add nsw i64 %211, 1
  %223 = getelementptr inbounds i32, ptr %179, i64 %211
  store i32 %215, ptr %223, align 4, !tbaa !4
  br label %227

224:                                              ; preds = %210
  %225 = add nsw i64 %212, 1
  %226 = getelementptr inbounds i32, ptr %180, i64 %212
  store i32 %215, ptr %226, align 4, !tbaa !4
  br label %227

227:                                              ; preds = %224, %221
  %228 = phi i64 [ %212, %221 ], [ %225, %224 ]
  %229 = phi i64 [ %222, %221 ], [ %211, %224 ]
  %230 = add nuw nsw i64 %213, 1
  %231 = icmp eq i64 %230, %171
  br i1 %231, label %181, label %210, !llvm.loop !72

232:                                              ; preds = %456, %193
  %233 = phi i64 [ %206, %193 ], [ %457, %456 ]
  %234 = phi i1 [ %187, %193 ], [ %465, %456 ]
  %235 = phi i1 [ %186, %193 ], [ %464, %456 ]
  %236 = phi i64 [ 0, %193 ], [ %463, %456 ]
  %237 = phi i64 [ %183, %193 ], [ %462, %456 ]
  %238 = phi i64 [ 0, %193 ], [ %461, %456 ]
  %239 = phi i64 [ 0, %193 ], [ %460, %456 ]
  %240 = phi i64 [ %182, %193 ], [ %459, %456 ]
  %241 = phi i64 [ 0, %193 ], [ %458, %456 ]
  br i1 %235, label %242, label %256

242:                                              ; preds = %232
  %243 = load ptr, ptr %196, align 8, !tbaa !73
  %244 = load ptr, ptr %197, align 8, !tbaa !74
  %245 = getelementptr inbounds i32, ptr %244, i64 %239
  %246 = load i32, ptr %245, align 4, !tbaa !4
  %247 = sext i32 %246 to i64
  %248 = getelementptr inbounds i32, ptr %243, i64 %247
  %249 = add nsw i64 %239, 1
  %250 = getelementptr inbounds i32, ptr %244, i64 %249
  %251 = load i32, ptr %250, align 4, !tbaa !4
  %252 = sub nsw i32 %251, %246
  %253 = getelementptr inbounds i32, ptr %208, i64 %239
  %254 = load i32, ptr %253, align 4, !tbaa !4
  %255 = icmp eq i32 %254, %169
  br i1 %255, label %456, label %282, !llvm.loop !75

256:                                              ; preds = %232
  %257 = load ptr, ptr %39, align 8
  %258 = getelementptr inbounds i32, ptr %257, i64 %238
  %259 = load ptr, ptr %41, align 8
  %260 = getelementptr inbounds i32, ptr %259, i64 %241
  %261 = xor i1 %234, true
  %262 = zext i1 %261 to i64
  %263 = add nsw i64 %241, %262
  %264 = zext i1 %234 to i64
  %265 = add nsw i64 %238, %264
  %266 = select i1 %234, ptr %258, ptr %260
  %267 = load i32, ptr %266, align 4, !tbaa !4
  %268 = sext i32 %267 to i64
  %269 = getelementptr inbounds i32, ptr %207, i64 %268
  %270 = load i32, ptr %269, align 4, !tbaa !4
  %271 = icmp eq i32 %270, %169
  br i1 %271, label %456, label %272, !llvm.loop !75

272:                                              ; preds = %256
  %273 = load ptr, ptr %194, align 8, !tbaa !76
  %274 = load ptr, ptr %195, align 8, !tbaa !77
  %275 = getelementptr inbounds i32, ptr %274, i64 %268
  %276 = load i32, ptr %275, align 4, !tbaa !4
  %277 = sext i32 %276 to i64
  %278 = getelementptr inbounds i32, ptr %273, i64 %277
  %279 = getelementptr i8, ptr %275, i64 4
  %280 = load i32, ptr %279, align 4, !tbaa !4
  %281 = sub nsw i32 %280, %276
  br label %282

282:                                              ; preds = %272, %242
  %283 = phi i64 [ %241, %242 ], [ %263, %272 ]
  %284 = phi i64 [ %249, %242 ], [ %239, %272 ]
  %285 = phi ptr [ %248, %242 ], [ %278, %272 ]
  %286 = phi i32 [ %252, %242 ], [ %281, %272 ]
  %287 = phi i64 [ %238, %242 ], [ %265, %272 ]
  %288 = icmp sgt i32 %286, 0
  %289 = zext nneg i32 %286 to i64
  %290 = load ptr, ptr %43, align 8
  %291 = load ptr, ptr %55, align 8
  %292 = load ptr, ptr %120, align 8
  %293 = load ptr, ptr %35, align 8
  %294 = load float, ptr %117, align 4
  %295 = load float, ptr %115, align 8
  br label %296

296:                                              ; preds = %317, %282
  %297 = phi i1 [ true, %282 ], [ false, %317 ]
  %298 = phi float [ 0.000000e+00, %282 ], [ %319, %317 ]
  %299 = phi i32 [ -1, %282 ], [ %318, %317 ]
  br i1 %288, label %322, label %317

300:                                              ; preds = %317
  %301 = sext i32 %286 to i64
  %302 = add nsw i64 %233, %301
  store i64 %302, ptr %108, align 8, !tbaa !56
  %303 = add nsw i64 %236, 1
  %304 = getelementptr inbounds i32, ptr %209, i64 %236
  store i32 %318, ptr %304, align 4, !tbaa !4
  %305 = load ptr, ptr %198, align 8, !tbaa !78
  %306 = sext i32 %318 to i64
  %307 = getelementptr inbounds i32, ptr %305, i64 %306
  %308 = load i32, ptr %307, align 4, !tbaa !4
  %309 = add nsw i32 %318, 1
  %310 = sext i32 %309 to i64
  %311 = getelementptr inbounds i32, ptr %305, i64 %310
  %312 = load i32, ptr %311, align 4, !tbaa !4
  %313 = icmp slt i32 %308, %312
  br i1 %313, label %314, label %381

314:                                              ; preds = %300
  %315 = load ptr, ptr %199, align 8, !tbaa !79
  %316 = sext i32 %308 to i64
  br label %391

317:                                              ; preds = %376, %296
  %318 = phi i32 [ %299, %296 ], [ %377, %376 ]
  %319 = phi float [ %298, %296 ], [ %378, %376 ]
  %320 = icmp slt i32 %318, 0
  %321 = select i1 %297, i1 %320, i1 false
  br i1 %321, label %296, label %300, !llvm.loop !80

322:                                              ; preds = %376, %296
  %323 = phi i64 [ %379, %376 ], [ 0, %296 ]
  %324 = phi float [ %378, %376 ], [ %298, %296 ]
  %325 = phi i32 [ %377, %376 ], [ %299, %296 ]
  %326 = getelementptr inbounds nuw i32, ptr %285, i64 %323
  %327 = load i32, ptr %326, align 4, !tbaa !4
  %328 = sext i32 %327 to i64
  br i1 %297, label %329, label %333

329:                                              ; preds = %322
  %330 = getelementptr inbounds i32, ptr %290, i64 %328
  %331 = load i32, ptr %330, align 4, !tbaa !4
  %332 = icmp eq i32 %331, 0
  br i1 %332, label %333, label %376

333:                                              ; preds = %329, %322
  %334 = load ptr, ptr %198, align 8, !tbaa !78
  %335 = getelementptr inbounds i32, ptr %334, i64 %328
  %336 = load i32, ptr %335, align 4, !tbaa !4
  %337 = getelementptr i8, ptr %335, i64 4
  %338 = load i32, ptr %337, align 4, !tbaa !4
  %339 = icmp slt i32 %336, %338
  br i1 %339, label %340, label %358

340:                                              ; preds = %333
  %341 = load ptr, ptr %199, align 8, !tbaa !79
  %342 = sext i32 %336 to i64
  %343 = sext i32 %338 to i64
  br label %346

344:                                              ; preds = %346
  %345 = icmp eq i32 %355, 0
  br i1 %345, label %376, label %358

346:                                              ; preds = %346, %340
  %347 = phi i64 [ %342, %340 ], [ %356, %346 ]
  %348 = phi i32 [ 1, %340 ], [ %355, %346 ]
  %349 = getelementptr inbounds i32, ptr %341, i64 %347
  %350 = load i32, ptr %349, align 4, !tbaa !4
  %351 = sext i32 %350 to i64
  %352 = getelementptr inbounds i32, ptr %291, i64 %351
  %353 = load i32, ptr %352, align 4, !tbaa !4
  %354 = icmp eq i32 %353, %169
  %355 = select i1 %354, i32 0, i32 %348
  %356 = add nsw i64 %347, 1
  %357 = icmp eq i64 %356, %343
  br i1 %357, label %344, label %346, !llvm.loop !81

358:                                              ; preds = %344, %333
  %359 = load ptr, ptr %200, align 8, !tbaa !82
  %360 = getelementptr inbounds float, ptr %359, i64 %328
  %361 = load float, ptr %360, align 4, !tbaa !16
  %362 = getelementptr inbounds float, ptr %292, i64 %328
  %363 = load float, ptr %362, align 4, !tbaa !16
  %364 = fmul float %295, %363
  %365 = fadd float %361, %364
  %366 = getelementptr inbounds i32, ptr %293, i64 %328
  %367 = load i32, ptr %366, align 4, !tbaa !4
  %368 = icmp eq i32 %367, 0
  %369 = select i1 %368, float 0.000000e+00, float %294
  %370 = fadd float %365, %369
  %371 = icmp slt i32 %325, 0
  %372 = fcmp ogt float %370, %324
  %373 = select i1 %371, i1 true, i1 %372
  %374 = select i1 %373, i32 %327, i32 %325
  %375 = select i1 %373, float %370, float %324
  br label %376

376:                                              ; preds = %358, %344, %329
  %377 = phi i32 [ %325, %329 ], [ %374, %358 ], [ %325, %344 ]
  %378 = phi float [ %324, %329 ], [ %375, %358 ], [ %324, %344 ]
  %379 = add nuw nsw i64 %323, 1
  %380 = icmp eq i64 %379, %289
  br i1 %380, label %317, label %322, !llvm.loop !83

381:                                              ; preds = %391, %300
  %382 = load ptr, ptr %201, align 8, !tbaa !84
  %383 = getelementptr inbounds i32, ptr %382, i64 %306
  %384 = load i32, ptr %383, align 4, !tbaa !4
  %385 = getelementptr inbounds i32, ptr %382, i64 %310
  %386 = load i32, ptr %385, align 4, !tbaa !4
  %387 = icmp slt i32 %384, %386
  br i1 %387, label %388, label %401

388:                                              ; preds = %381
  %389 = load ptr, ptr %202, align 8, !tbaa !85
  %390 = sext i32 %384 to i64
  br label %414

391:                                              ; preds = %391, %314
  %392 = phi i64 [ %316, %314 ], [ %397, %391 ]
  %393 = getelementptr inbounds i32, ptr %315, i64 %392
  %394 = load i32, ptr %393, align 4, !tbaa !4
  %395 = sext i32 %394 to i64
  %396 = getelementptr inbounds i32, ptr %208, i64 %395
  store i32 %169, ptr %396, align 4, !tbaa !4
  %397 = add nsw i64 %392, 1
  %398 = load i32, ptr %311, align 4, !tbaa !4
  %399 = sext i32 %398 to i64
  %400 = icmp slt i64 %397, %399
  br i1 %400, label %391, label %381, !llvm.loop !86

401:                                              ; preds = %414, %381
  %402 = load ptr, ptr %203, align 8, !tbaa !21
  %403 = getelementptr inbounds i32, ptr %402, i64 %306
  %404 = load i32, ptr %403, align 4, !tbaa !4
  %405 = getelementptr inbounds i32, ptr %402, i64 %310
  %406 = load i32, ptr %405, align 4, !tbaa !4
  %407 = icmp slt i32 %404, %406
  br i1 %407, label %408, label %456

408:                                              ; preds = %401
  %409 = load ptr, ptr %204, align 8, !tbaa !23
  %410 = sext i32 %404 to i64
  %411 = load ptr, ptr %27, align 8
  %412 = load ptr, ptr %39, align 8
  %413 = load ptr, ptr %41, align 8
  br label %424

414:                                              ; preds = %414, %388
  %415 = phi i64 [ %390, %388 ], [ %420, %414 ]
  %416 = getelementptr inbounds i32, ptr %389, i64 %415
  %417 = load i32, ptr %416, align 4, !tbaa !4
  %418 = sext i32 %417 to i64
  %419 = getelementptr inbounds i32, ptr %207, i64 %418
  store i32 %169, ptr %419, align 4, !tbaa !4
  %420 = add nsw i64 %415, 1
  %421 = load i32, ptr %385, align 4, !tbaa !4
  %422 = sext i32 %421 to i64
  %423 = icmp slt i64 %420, %422
  br i1 %423, label %414, label %401, !llvm.loop !87

424:                                              ; preds = %449, %408
  %425 = phi i64 [ %410, %408 ], [ %452, %449 ]
  %426 = phi i64 [ %237, %408 ], [ %451, %449 ]
  %427 = phi i64 [ %240, %408 ], [ %450, %449 ]
  %428 = getelementptr inbounds i32, ptr %409, i64 %425
  %429 = load i32, ptr %428, align 4, !tbaa !4
  %430 = sext i32 %429 to i64
  %431 = getelementptr inbounds i32, ptr %207, i64 %430
  %432 = load i32, ptr %431, align 4, !tbaa !4
  %433 = icmp eq i32 %432, %169
  br i1 %433, label %449, label %434

434:                                              ; preds = %424
  %435 = getelementptr inbounds i32, ptr %411, i64 %430
  %436 = load i32, ptr %435, align 4, !tbaa !4
  %437 = icmp eq i32 %436, %169
  br i1 %437, label %449, label %438

438:                                              ; preds = %434
  store i32 %169, ptr %435, align 4, !tbaa !4
  %439 = load ptr, ptr %205, align 8, !tbaa !69
  %440 = getelementptr inbounds i32, ptr %439, i64 %430
  %441 = load i32, ptr %440, align 4, !tbaa !4
  %442 = icmp eq i32 %441, 0
  br i1 %442, label %446, label %443

443:                                              ; preds = %438
  %444 = add nsw i64 %426, 1
  %445 = getelementptr inbounds i32, ptr %412, i64 %426
  store i32 %429, ptr %445, align 4, !tbaa !4
  br label %449

446:                                              ; preds = %438
  %447 = add nsw i64 %427, 1
  %448 = getelementptr inbounds i32, ptr %413, i64 %427
  store i32 %429, ptr %448, align 4, !tbaa !4
  br label %449

449:                                              ; preds = %446, %443, %434, %424
  %450 = phi i64 [ %427, %424 ], [ %427, %434 ], [ %427, %443 ], [ %447, %446 ]
  %451 = phi i64 [ %426, %424 ], [ %426, %434 ], [ %444, %443 ], [ %426, %446 ]
  %452 = add nsw i64 %425, 1
  %453 = load i32, ptr %405, align 4, !tbaa !4
  %454 = sext i32 %453 to i64
  %455 = icmp slt i64 %452, %454
  br i1 %455, label %424, label %456, !llvm.loop !88

456:                                              ; preds = %449, %401, %256, %242
  %457 = phi i64 [ %233, %242 ], [ %233, %256 ], [ %302, %401 ], [ %302, %449 ]
  %458 = phi i64 [ %241, %242 ], [ %263, %256 ], [ %283, %401 ], [ %283, %449 ]
  %459 = phi i64 [ %240, %242 ], [ %240, %256 ], [ %240, %401 ], [ %450, %449 ]
  %460 = phi i64 [ %249, %242 ], [ %239, %256 ], [ %284, %401 ], [ %284, %449 ]
  %461 = phi i64 [ %238, %242 ], [ %265, %256 ], [ %287, %401 ], [ %287, %449 ]
  %462 = phi i64 [ %237, %242 ], [ %237, %256 ], [ %237, %401 ], [ %451, %449 ]
  %463 = phi i64 [ %236, %242 ], [ %236, %256 ], [ %303, %401 ], [ %303, %449 ]
  %464 = icmp slt i64 %460, %185
  %465 = icmp slt i64 %461, %462
  %466 = select i1 %464, i1 true, i1 %465
  %467 = icmp slt i64 %458, %459
  %468 = select i1 %466, i1 true, i1 %467
  br i1 %468, label %232, label %469

469:                                              ; preds = %456
  %470 = load ptr, ptr %33, align 8, !tbaa !71
  %471 = icmp sgt i64 %463, 0
  br i1 %471, label %472, label %482

472:                                              ; preds = %469
  %473 = load ptr, ptr %21, align 8, !tbaa !89
  br label %474

474:                                              ; preds = %474, %472
  %475 = phi i64 [ 0, %472 ], [ %480, %474 ]
  %476 = getelementptr inbounds nuw i32, ptr %470, i64 %475
  %477 = load i32, ptr %476, align 4, !tbaa !4
  %478 = sext i32 %477 to i64
  %479 = getelementptr inbounds i32, ptr %473, i64 %478
  store i32 1, ptr %479, align 4, !tbaa !4
  %480 = add nuw nsw i64 %475, 1
  %481 = icmp eq i64 %480, %463
  br i1 %481, label %487, label %474, !llvm.loop !90

482:                                              ; preds = %469, %191
  %483 = phi ptr [ %470, %469 ], [ %192, %191 ]
  %484 = phi i64 [ %463, %469 ], [ 0, %191 ]
  %485 = load ptr, ptr %29, align 8, !tbaa !91
  %486 = call fastcc i64 @keep(ptr noundef %5, ptr noundef %483, i64 noundef %484, ptr noundef %485) #7
  br label %500

487:                                              ; preds = %474
  %488 = load ptr, ptr %29, align 8, !tbaa !91
  %489 = call fastcc i64 @keep(ptr noundef %5, ptr noundef nonnull %470, i64 noundef %463, ptr noundef %488) #7
  %490 = load ptr, ptr %33, align 8, !tbaa !71
  %491 = load ptr, ptr %21, align 8, !tbaa !89
  br label %492

492:                                              ; preds = %492, %487
  %493 = phi i64 [ 0, %487 ], [ %498, %492 ]
  %494 = getelementptr inbounds nuw i32, ptr %490, i64 %493
  %495 = load i32, ptr %494, align 4, !tbaa !4
  %496 = sext i32 %495 to i64
  %497 = getelementptr inbounds i32, ptr %491, i64 %496
  store i32 0, ptr %497, align 4, !tbaa !4
  %498 = add nuw nsw i64 %493, 1
  %499 = icmp eq i64 %498, %463
  br i1 %499, label %500, label %492, !llvm.loop !90

500:                                              ; preds = %492, %482
  %501 = phi i64 [ %486, %482 ], [ %489, %492 ]
  %502 = icmp slt i64 %501, 0
  br i1 %502, label %1227, label %503

503:                                              ; preds = %500
  %504 = load ptr, ptr %29, align 8, !tbaa !91
  %505 = icmp eq i64 %501, 0
  br i1 %505, label %523, label %506

506:                                              ; preds = %503
  %507 = load ptr, ptr %122, align 8, !tbaa !29
  br label %508

508:                                              ; preds = %508, %506
  %509 = phi i64 [ 0, %506 ], [ %518, %508 ]
  %510 = phi i64 [ 0, %506 ], [ %517, %508 ]
  %511 = getelementptr inbounds nuw i32, ptr %504, i64 %509
  %512 = load i32, ptr %511, align 4, !tbaa !4
  %513 = sext i32 %512 to i64
  %514 = getelementptr inbounds i32, ptr %507, i64 %513
  %515 = load i32, ptr %514, align 4, !tbaa !4
  %516 = sext i32 %515 to i64
  %517 = add nsw i64 %510, %516
  %518 = add nuw nsw i64 %509, 1
  %519 = icmp eq i64 %518, %501
  br i1 %519, label %520, label %508, !llvm.loop !50

520:                                              ; preds = %508
  %521 = mul nsw i64 %517, 5
  %522 = icmp sgt i64 %521, %161
  br i1 %522, label %1227, label %524

523:                                              ; preds = %503
  br i1 %162, label %1227, label %534

524:                                              ; preds = %520
  %525 = load ptr, ptr %21, align 8, !tbaa !89
  br label %526

526:                                              ; preds = %526, %524
  %527 = phi i64 [ 0, %524 ], [ %532, %526 ]
  %528 = getelementptr inbounds nuw i32, ptr %504, i64 %527
  %529 = load i32, ptr %528, align 4, !tbaa !4
  %530 = sext i32 %529 to i64
  %531 = getelementptr inbounds i32, ptr %525, i64 %530
  store i32 1, ptr %531, align 4, !tbaa !4
  %532 = add nuw nsw i64 %527, 1
  %533 = icmp eq i64 %532, %501
  br i1 %533, label %536, label %526, !llvm.loop !90

534:                                              ; preds = %523
  %535 = load ptr, ptr %5, align 8, !tbaa !41
  br label %552

536:                                              ; preds = %526
  %537 = load ptr, ptr %5, align 8, !tbaa !41
  %538 = getelementptr inbounds nuw i8, ptr %537, i64 56
  %539 = load ptr, ptr %538, align 8, !tbaa !29
  br label %540

540:                                              ; preds = %540, %536
  %541 = phi i64 [ 0, %536 ], [ %550, %540 ]
  %542 = phi i64 [ 0, %536 ], [ %549, %540 ]
  %543 = getelementptr inbounds nuw i32, ptr %504, i64 %541
  %544 = load i32, ptr %543, align 4, !tbaa !4
  %545 = sext i32 %544 to i64
  %546 = getelementptr inbounds i32, ptr %539, i64 %545
  %547 = load i32, ptr %546, align 4, !tbaa !4
  %548 = sext i32 %547 to i64
  %549 = add nsw i64 %542, %548
  %550 = add nuw nsw i64 %541, 1
  %551 = icmp eq i64 %550, %501
  br i1 %551, label %552, label %540, !llvm.loop !50

552:                                              ; preds = %540, %534
  %553 = phi ptr [ %535, %534 ], [ %537, %540 ]
  %554 = phi i64 [ 0, %534 ], [ %549, %540 ]
  %555 = getelementptr inbounds nuw i8, ptr %553, i64 64
  %556 = getelementptr inbounds nuw i8, ptr %553, i64 152
  %557 = getelementptr inbounds nuw i8, ptr %553, i64 160
  %558 = getelementptr inbounds nuw i8, ptr %553, i64 56
  br label %559

559:                                              ; preds = %575, %552
  %560 = phi i64 [ %501, %552 ], [ %764, %575 ]
  %561 = phi i64 [ %554, %552 ], [ %763, %575 ]
  %562 = phi i32 [ 0, %552 ], [ %577, %575 ]
  %563 = icmp sgt i64 %560, 0
  br i1 %563, label %564, label %789

564:                                              ; preds = %559
  %565 = load ptr, ptr %29, align 8, !tbaa !91
  %566 = load ptr, ptr %33, align 8, !tbaa !71
  br label %568

567:                                              ; preds = %568
  call fastcc void @count_readers(ptr noundef nonnull %5, i64 noundef %560) #7
  br label %580

568:                                              ; preds = %568, %564
  %569 = phi i64 [ 0, %564 ], [ %573, %568 ]
  %570 = getelementptr inbounds nuw i32, ptr %565, i64 %569
  %571 = load i32, ptr %570, align 4, !tbaa !4
  %572 = getelementptr inbounds nuw i32, ptr %566, i64 %569
  store i32 %571, ptr %572, align 4, !tbaa !4
  %573 = add nuw nsw i64 %569, 1
  %574 = icmp eq i64 %573, %560
  br i1 %574, label %567, label %568, !llvm.loop !92

575:                                              ; preds = %762
  %576 = icmp eq i64 %763, %561
  %577 = add nuw nsw i32 %562, 1
  %578 = icmp eq i32 %577, 3
  %579 = select i1 %576, i1 true, i1 %578
  br i1 %579, label %767, label %559, !llvm.loop !93

580:                                              ; preds = %762, %567
  %581 = phi i64 [ %764, %762 ], [ %560, %567 ]
  %582 = phi i64 [ %763, %762 ], [ %561, %567 ]
  %583 = phi i64 [ %765, %762 ], [ 0, %567 ]
  %584 = load ptr, ptr %33, align 8, !tbaa !71
  %585 = getelementptr inbounds nuw i32, ptr %584, i64 %583
  %586 = load i32, ptr %585, align 4, !tbaa !4
  %587 = load ptr, ptr %555, align 8, !tbaa !34
  %588 = sext i32 %586 to i64
  %589 = getelementptr inbounds i32, ptr %587, i64 %588
  %590 = load i32, ptr %589, align 4, !tbaa !4
  %591 = icmp slt i32 %590, 0
  br i1 %591, label %762, label %592

592:                                              ; preds = %580
  %593 = load ptr, ptr %21, align 8, !tbaa !89
  %594 = getelementptr inbounds i32, ptr %593, i64 %588
  %595 = load i32, ptr %594, align 4, !tbaa !4
  %596 = icmp eq i32 %595, 0
  br i1 %596, label %762, label %597

597:                                              ; preds = %592
  %598 = load ptr, ptr %556, align 8, !tbaa !94
  %599 = add nuw nsw i32 %590, 1
  %600 = zext nneg i32 %599 to i64
  %601 = getelementptr inbounds nuw i32, ptr %598, i64 %600
  %602 = load i32, ptr %601, align 4, !tbaa !4
  %603 = zext nneg i32 %590 to i64
  %604 = getelementptr inbounds nuw i32, ptr %598, i64 %603
  %605 = load i32, ptr %604, align 4, !tbaa !4
  %606 = sub nsw i32 %602, %605
  %607 = icmp slt i32 %606, 2
  br i1 %607, label %762, label %608

608:                                              ; preds = %597
  %609 = call fastcc i32 @worth(ptr noundef nonnull %5, i32 noundef %586, i32 noundef 0) #7
  %610 = icmp eq i32 %609, 0
  br i1 %610, label %762, label %611

611:                                              ; preds = %608
  %612 = load ptr, ptr %21, align 8, !tbaa !89
  %613 = getelementptr inbounds i32, ptr %612, i64 %588
  store i32 0, ptr %613, align 4, !tbaa !4
  %614 = load ptr, ptr %556, align 8, !tbaa !94
  %615 = getelementptr inbounds nuw i32, ptr %614, i64 %603
  %616 = load i32, ptr %615, align 4, !tbaa !4
  %617 = getelementptr inbounds nuw i32, ptr %614, i64 %600
  %618 = load i32, ptr %617, align 4, !tbaa !4
  %619 = icmp slt i32 %616, %618
  br i1 %619, label %620, label %759

620:                                              ; preds = %611
  %621 = sext i32 %616 to i64
  %622 = add nuw nsw i64 %581, 1
  br label %624

623:                                              ; preds = %736, %735
  call fastcc void @count_readers(ptr noundef nonnull %5, i64 noundef %697) #7
  br label %762

624:                                              ; preds = %751, %620
  %625 = phi ptr [ %612, %620 ], [ %752, %751 ]
  %626 = phi i64 [ %621, %620 ], [ %753, %751 ]
  %627 = load ptr, ptr %557, align 8, !tbaa !95
  %628 = getelementptr inbounds i32, ptr %627, i64 %626
  %629 = load i32, ptr %628, align 4, !tbaa !4
  %630 = load i64, ptr %108, align 8, !tbaa !56
  %631 = add nsw i64 %630, 1
  store i64 %631, ptr %108, align 8, !tbaa !56
  %632 = icmp eq i32 %629, %586
  br i1 %632, label %751, label %633

633:                                              ; preds = %624
  %634 = load ptr, ptr %558, align 8, !tbaa !29
  %635 = sext i32 %629 to i64
  %636 = getelementptr inbounds i32, ptr %634, i64 %635
  %637 = load i32, ptr %636, align 4, !tbaa !4
  %638 = icmp slt i32 %637, %609
  br i1 %638, label %639, label %751

639:                                              ; preds = %633
  %640 = getelementptr inbounds i32, ptr %625, i64 %635
  %641 = load i32, ptr %640, align 4, !tbaa !4
  %642 = icmp eq i32 %641, 0
  br i1 %642, label %643, label %751

643:                                              ; preds = %639
  %644 = load ptr, ptr %5, align 8, !tbaa !41
  %645 = getelementptr inbounds nuw i8, ptr %644, i64 104
  %646 = load ptr, ptr %645, align 8, !tbaa !21
  %647 = getelementptr inbounds i32, ptr %646, i64 %635
  %648 = load i32, ptr %647, align 4, !tbaa !4
  %649 = getelementptr i8, ptr %647, i64 4
  %650 = load i32, ptr %649, align 4, !tbaa !4
  %651 = icmp slt i32 %648, %650
  br i1 %651, label %652, label %693

652:                                              ; preds = %643
  %653 = getelementptr inbounds nuw i8, ptr %644, i64 120
  %654 = load ptr, ptr %653, align 8, !tbaa !77
  %655 = getelementptr inbounds nuw i8, ptr %644, i64 112
  %656 = load ptr, ptr %655, align 8, !tbaa !23
  %657 = getelementptr inbounds nuw i8, ptr %644, i64 128
  %658 = sext i32 %648 to i64
  br label %663

659:                                              ; preds = %690
  %660 = add nsw i64 %664, 1
  %661 = trunc i64 %660 to i32
  %662 = icmp eq i32 %650, %661
  br i1 %662, label %693, label %663, !llvm.loop !96

663:                                              ; preds = %659, %652
  %664 = phi i64 [ %658, %652 ], [ %660, %659 ]
  %665 = getelementptr inbounds i32, ptr %656, i64 %664
  %666 = load i32, ptr %665, align 4, !tbaa !4
  %667 = sext i32 %666 to i64
  %668 = getelementptr inbounds i32, ptr %654, i64 %667
  %669 = load i32, ptr %668, align 4, !tbaa !4
  %670 = getelementptr i8, ptr %668, i64 4
  %671 = load i32, ptr %670, align 4, !tbaa !4
  %672 = icmp slt i32 %669, %671
  br i1 %672, label %673, label %690

673:                                              ; preds = %663
  %674 = load ptr, ptr %657, align 8, !tbaa !76
  %675 = sext i32 %669 to i64
  br label %676

676:                                              ; preds = %684, %673
  %677 = phi i64 [ %675, %673 ], [ %685, %684 ]
  %678 = getelementptr inbounds i32, ptr %674, i64 %677
  %679 = load i32, ptr %678, align 4, !tbaa !4
  %680 = sext i32 %679 to i64
  %681 = getelementptr inbounds i32, ptr %625, i64 %680
  %682 = load i32, ptr %681, align 4, !tbaa !4
  %683 = icmp eq i32 %682, 0
  br i1 %683, label %684, label %688

684:                                              ; preds = %676
  %685 = add nsw i64 %677, 1
  %686 = trunc i64 %685 to i32
  %687 = icmp eq i32 %671, %686
  br i1 %687, label %751, label %676, !llvm.loop !97

688:                                              ; preds = %676
  %689 = trunc nsw i64 %677 to i32
  br label %690

690:                                              ; preds = %688, %663
  %691 = phi i32 [ %669, %663 ], [ %689, %688 ]
  %692 = icmp eq i32 %691, %671
  br i1 %692, label %751, label %659

693:                                              ; preds = %659, %643
  store i32 1, ptr %640, align 4, !tbaa !4
  %694 = load ptr, ptr %29, align 8, !tbaa !91
  %695 = getelementptr inbounds nuw i32, ptr %694, i64 %581
  store i32 %629, ptr %695, align 4, !tbaa !4
  %696 = load ptr, ptr %31, align 8, !tbaa !98
  %697 = call fastcc i64 @keep(ptr noundef nonnull %5, ptr noundef %694, i64 noundef %622, ptr noundef %696) #7
  %698 = icmp slt i64 %697, 0
  br i1 %698, label %699, label %702

699:                                              ; preds = %693
  %700 = load ptr, ptr %21, align 8, !tbaa !89
  %701 = getelementptr inbounds i32, ptr %700, i64 %635
  store i32 0, ptr %701, align 4, !tbaa !4
  br label %751

702:                                              ; preds = %693
  %703 = load ptr, ptr %31, align 8, !tbaa !98
  %704 = icmp eq i64 %697, 0
  br i1 %704, label %719, label %705

705:                                              ; preds = %702
  %706 = load ptr, ptr %558, align 8, !tbaa !29
  br label %707

707:                                              ; preds = %707, %705
  %708 = phi i64 [ 0, %705 ], [ %717, %707 ]
  %709 = phi i64 [ 0, %705 ], [ %716, %707 ]
  %710 = getelementptr inbounds nuw i32, ptr %703, i64 %708
  %711 = load i32, ptr %710, align 4, !tbaa !4
  %712 = sext i32 %711 to i64
  %713 = getelementptr inbounds i32, ptr %706, i64 %712
  %714 = load i32, ptr %713, align 4, !tbaa !4
  %715 = sext i32 %714 to i64
  %716 = add nsw i64 %709, %715
  %717 = add nuw nsw i64 %708, 1
  %718 = icmp eq i64 %717, %697
  br i1 %718, label %719, label %707, !llvm.loop !50

719:                                              ; preds = %707, %702
  %720 = phi i64 [ 0, %702 ], [ %716, %707 ]
  %721 = load ptr, ptr %21, align 8, !tbaa !89
  %722 = getelementptr inbounds i32, ptr %721, i64 %635
  store i32 0, ptr %722, align 4, !tbaa !4
  %723 = icmp slt i64 %720, %582
  br i1 %723, label %724, label %751

724:                                              ; preds = %719
  %725 = load ptr, ptr %29, align 8, !tbaa !91
  %726 = icmp sgt i64 %581, 0
  br i1 %726, label %727, label %735

727:                                              ; preds = %727, %724
  %728 = phi i64 [ %733, %727 ], [ 0, %724 ]
  %729 = getelementptr inbounds nuw i32, ptr %725, i64 %728
  %730 = load i32, ptr %729, align 4, !tbaa !4
  %731 = sext i32 %730 to i64
  %732 = getelementptr inbounds i32, ptr %721, i64 %731
  store i32 0, ptr %732, align 4, !tbaa !4
  %733 = add nuw nsw i64 %728, 1
  %734 = icmp eq i64 %733, %581
  br i1 %734, label %735, label %727, !llvm.loop !90

735:                                              ; preds = %727, %724
  br i1 %704, label %623, label %744

736:                                              ; preds = %744, %736
  %737 = phi i64 [ %742, %736 ], [ 0, %744 ]
  %738 = getelementptr inbounds nuw i32, ptr %725, i64 %737
  %739 = load i32, ptr %738, align 4, !tbaa !4
  %740 = sext i32 %739 to i64
  %741 = getelementptr inbounds i32, ptr %721, i64 %740
  store i32 1, ptr %741, align 4, !tbaa !4
  %742 = add nuw nsw i64 %737, 1
  %743 = icmp eq i64 %742, %697
  br i1 %743, label %623, label %736, !llvm.loop !90

744:                                              ; preds = %744, %735
  %745 = phi i64 [ %749, %744 ], [ 0, %735 ]
  %746 = getelementptr inbounds nuw i32, ptr %703, i64 %745
  %747 = load i32, ptr %746, align 4, !tbaa !4
  %748 = getelementptr inbounds nuw i32, ptr %725, i64 %745
  store i32 %747, ptr %748, align 4, !tbaa !4
  %749 = add nuw nsw i64 %745, 1
  %750 = icmp eq i64 %749, %697
  br i1 %750, label %736, label %744, !llvm.loop !99

751:                                              ; preds = %719, %699, %690, %684, %639, %633, %624
  %752 = phi ptr [ %625, %684 ], [ %625, %624 ], [ %721, %719 ], [ %700, %699 ], [ %625, %639 ], [ %625, %633 ], [ %625, %690 ]
  %753 = add nsw i64 %626, 1
  %754 = load ptr, ptr %556, align 8, !tbaa !94
  %755 = getelementptr inbounds nuw i32, ptr %754, i64 %600
  %756 = load i32, ptr %755, align 4, !tbaa !4
  %757 = sext i32 %756 to i64
  %758 = icmp slt i64 %753, %757
  br i1 %758, label %624, label %759, !llvm.loop !100

759:                                              ; preds = %751, %611
  %760 = phi ptr [ %612, %611 ], [ %752, %751 ]
  %761 = getelementptr inbounds i32, ptr %760, i64 %588
  store i32 1, ptr %761, align 4, !tbaa !4
  br label %762

762:                                              ; preds = %759, %623, %608, %597, %592, %580
  %763 = phi i64 [ %582, %580 ], [ %582, %608 ], [ %582, %597 ], [ %582, %592 ], [ %582, %759 ], [ %720, %623 ]
  %764 = phi i64 [ %581, %580 ], [ %581, %608 ], [ %581, %597 ], [ %581, %592 ], [ %581, %759 ], [ %697, %623 ]
  %765 = add nuw nsw i64 %583, 1
  %766 = icmp eq i64 %765, %560
  br i1 %766, label %575, label %580, !llvm.loop !101

767:                                              ; preds = %575
  %768 = load ptr, ptr %29, align 8, !tbaa !91
  %769 = icmp sgt i64 %764, 0
  br i1 %769, label %770, label %786

770:                                              ; preds = %767
  %771 = load ptr, ptr %122, align 8, !tbaa !29
  br label %772

772:                                              ; preds = %772, %770
  %773 = phi i64 [ 0, %770 ], [ %782, %772 ]
  %774 = phi i64 [ 0, %770 ], [ %781, %772 ]
  %775 = getelementptr inbounds nuw i32, ptr %768, i64 %773
  %776 = load i32, ptr %775, align 4, !tbaa !4
  %777 = sext i32 %776 to i64
  %778 = getelementptr inbounds i32, ptr %771, i64 %777
  %779 = load i32, ptr %778, align 4, !tbaa !4
  %780 = sext i32 %779 to i64
  %781 = add nsw i64 %774, %780
  %782 = add nuw nsw i64 %773, 1
  %783 = icmp eq i64 %782, %764
  br i1 %783, label %784, label %772, !llvm.loop !50

784:                                              ; preds = %772
  %785 = icmp slt i64 %781, %134
  br i1 %785, label %793, label %1175

786:                                              ; preds = %767
  br i1 %164, label %787, label %1221

787:                                              ; preds = %786
  %788 = load ptr, ptr %5, align 8, !tbaa !41
  br label %797

789:                                              ; preds = %559
  call fastcc void @count_readers(ptr noundef nonnull %5, i64 noundef 0) #7
  br i1 %163, label %790, label %1221

790:                                              ; preds = %789
  %791 = load ptr, ptr %29, align 8, !tbaa !91
  %792 = load ptr, ptr %5, align 8, !tbaa !41
  br label %797

793:                                              ; preds = %784
  %794 = load ptr, ptr %5, align 8, !tbaa !41
  %795 = load ptr, ptr %49, align 8, !tbaa !102
  %796 = load ptr, ptr %51, align 8, !tbaa !103
  br label %809

797:                                              ; preds = %809, %790, %787
  %798 = phi ptr [ %792, %790 ], [ %788, %787 ], [ %794, %809 ]
  %799 = phi i1 [ false, %790 ], [ false, %787 ], [ true, %809 ]
  %800 = phi ptr [ %791, %790 ], [ %768, %787 ], [ %768, %809 ]
  %801 = phi i64 [ 0, %790 ], [ 0, %787 ], [ %764, %809 ]
  %802 = phi i64 [ 0, %790 ], [ 0, %787 ], [ %781, %809 ]
  %803 = getelementptr inbounds nuw i8, ptr %798, i64 40
  %804 = load i64, ptr %803, align 8, !tbaa !38
  %805 = icmp sgt i64 %804, 0
  br i1 %805, label %806, label %820

806:                                              ; preds = %797
  %807 = load ptr, ptr %57, align 8, !tbaa !104
  %808 = shl nuw i64 %804, 2
  call void @llvm.memset.p0.i64(ptr align 4 %807, i8 -1, i64 %808, i1 false), !tbaa !4
  br label %820

809:                                              ; preds = %809, %793
  %810 = phi i64 [ 0, %793 ], [ %818, %809 ]
  %811 = getelementptr inbounds nuw i32, ptr %768, i64 %810
  %812 = load i32, ptr %811, align 4, !tbaa !4
  %813 = sext i32 %812 to i64
  %814 = getelementptr inbounds i32, ptr %795, i64 %813
  store i32 0, ptr %814, align 4, !tbaa !4
  %815 = load i32, ptr %811, align 4, !tbaa !4
  %816 = sext i32 %815 to i64
  %817 = getelementptr inbounds i32, ptr %796, i64 %816
  store i32 -1, ptr %817, align 4, !tbaa !4
  %818 = add nuw nsw i64 %810, 1
  %819 = icmp eq i64 %818, %764
  br i1 %819, label %797, label %809, !llvm.loop !105

820:                                              ; preds = %806, %797
  br i1 %799, label %821, label %832

821:                                              ; preds = %820
  %822 = getelementptr inbounds nuw i8, ptr %798, i64 104
  %823 = load ptr, ptr %822, align 8, !tbaa !21
  %824 = getelementptr inbounds nuw i8, ptr %798, i64 80
  %825 = load ptr, ptr %824, align 8, !tbaa !30
  %826 = getelementptr inbounds nuw i8, ptr %798, i64 120
  %827 = getelementptr inbounds nuw i8, ptr %798, i64 112
  %828 = getelementptr inbounds nuw i8, ptr %798, i64 128
  %829 = getelementptr inbounds nuw i8, ptr %798, i64 48
  %830 = getelementptr inbounds nuw i8, ptr %798, i64 240
  %831 = getelementptr inbounds nuw i8, ptr %798, i64 248
  br label %841

832:                                              ; preds = %938, %820
  %833 = phi i64 [ 0, %820 ], [ %903, %938 ]
  br i1 %805, label %834, label %946

834:                                              ; preds = %832
  %835 = getelementptr inbounds nuw i8, ptr %798, i64 256
  %836 = load ptr, ptr %835, align 8, !tbaa !106
  %837 = getelementptr inbounds nuw i8, ptr %798, i64 264
  %838 = getelementptr inbounds nuw i8, ptr %798, i64 48
  %839 = load i32, ptr %836, align 4, !tbaa !4
  %840 = load ptr, ptr %57, align 8
  br label %950

841:                                              ; preds = %938, %821
  %842 = phi i64 [ 0, %821 ], [ %940, %938 ]
  %843 = phi i64 [ 0, %821 ], [ %939, %938 ]
  %844 = phi i64 [ 0, %821 ], [ %903, %938 ]
  %845 = getelementptr inbounds nuw i32, ptr %800, i64 %842
  %846 = load i32, ptr %845, align 4, !tbaa !4
  %847 = sext i32 %846 to i64
  %848 = getelementptr inbounds i32, ptr %825, i64 %847
  %849 = load i32, ptr %848, align 4, !tbaa !4
  %850 = icmp eq i32 %849, 0
  br i1 %850, label %851, label %902

851:                                              ; preds = %841
  %852 = getelementptr inbounds i32, ptr %823, i64 %847
  %853 = load i32, ptr %852, align 4, !tbaa !4
  %854 = getelementptr i8, ptr %852, i64 4
  %855 = sext i32 %853 to i64
  %856 = load ptr, ptr %21, align 8
  %857 = load ptr, ptr %59, align 8
  %858 = load ptr, ptr %51, align 8
  %859 = load ptr, ptr %61, align 8
  %860 = load ptr, ptr %49, align 8
  %861 = getelementptr inbounds i32, ptr %860, i64 %847
  br label %862

862:                                              ; preds = %890, %851
  %863 = phi i64 [ %855, %851 ], [ %899, %890 ]
  %864 = phi i64 [ %844, %851 ], [ %898, %890 ]
  %865 = load i32, ptr %854, align 4, !tbaa !4
  %866 = sext i32 %865 to i64
  %867 = icmp slt i64 %863, %866
  br i1 %867, label %868, label %902

868:                                              ; preds = %862
  %869 = load ptr, ptr %826, align 8, !tbaa !77
  %870 = load ptr, ptr %827, align 8, !tbaa !23
  %871 = getelementptr inbounds i32, ptr %870, i64 %863
  %872 = load i32, ptr %871, align 4, !tbaa !4
  %873 = sext i32 %872 to i64
  %874 = getelementptr inbounds i32, ptr %869, i64 %873
  %875 = load i32, ptr %874, align 4, !tbaa !4
  %876 = load ptr, ptr %828, align 8, !tbaa !76
  %877 = sext i32 %875 to i64
  br label %878

878:                                              ; preds = %878, %868
  %879 = phi i64 [ %886, %878 ], [ %877, %868 ]
  %880 = getelementptr inbounds i32, ptr %876, i64 %879
  %881 = load i32, ptr %880, align 4, !tbaa !4
  %882 = sext i32 %881 to i64
  %883 = getelementptr inbounds i32, ptr %856, i64 %882
  %884 = load i32, ptr %883, align 4, !tbaa !4
  %885 = icmp eq i32 %884, 0
  %886 = add nsw i64 %879, 1
  br i1 %885, label %878, label %887, !llvm.loop !107

887:                                              ; preds = %878
  %888 = load i64, ptr %829, align 8, !tbaa !39
  %889 = icmp slt i64 %864, %888
  br i1 %889, label %890, label %1173

890:                                              ; preds = %887
  %891 = getelementptr inbounds i32, ptr %857, i64 %864
  store i32 %846, ptr %891, align 4, !tbaa !4
  %892 = getelementptr inbounds i32, ptr %858, i64 %882
  %893 = load i32, ptr %892, align 4, !tbaa !4
  %894 = getelementptr inbounds i32, ptr %859, i64 %864
  store i32 %893, ptr %894, align 4, !tbaa !4
  %895 = trunc i64 %864 to i32
  store i32 %895, ptr %892, align 4, !tbaa !4
  %896 = load i32, ptr %861, align 4, !tbaa !4
  %897 = add nsw i32 %896, 1
  store i32 %897, ptr %861, align 4, !tbaa !4
  %898 = add nsw i64 %864, 1
  %899 = add nsw i64 %863, 1
  %900 = load i32, ptr %848, align 4, !tbaa !4
  %901 = icmp eq i32 %900, 0
  br i1 %901, label %862, label %902, !llvm.loop !108

902:                                              ; preds = %890, %862, %841
  %903 = phi i64 [ %844, %841 ], [ %864, %862 ], [ %898, %890 ]
  %904 = load ptr, ptr %830, align 8, !tbaa !109
  %905 = getelementptr inbounds i32, ptr %904, i64 %847
  %906 = load i32, ptr %905, align 4, !tbaa !4
  %907 = getelementptr i8, ptr %905, i64 4
  %908 = load i32, ptr %907, align 4, !tbaa !4
  %909 = icmp slt i32 %906, %908
  br i1 %909, label %910, label %938

910:                                              ; preds = %902
  %911 = load i64, ptr %829, align 8, !tbaa !39
  %912 = sext i32 %906 to i64
  %913 = load ptr, ptr %63, align 8
  %914 = load ptr, ptr %57, align 8
  %915 = load ptr, ptr %65, align 8
  br label %916

916:                                              ; preds = %920, %910
  %917 = phi i64 [ %912, %910 ], [ %933, %920 ]
  %918 = phi i64 [ %843, %910 ], [ %934, %920 ]
  %919 = icmp slt i64 %918, %911
  br i1 %919, label %920, label %1173

920:                                              ; preds = %916
  %921 = getelementptr inbounds i32, ptr %913, i64 %918
  store i32 %846, ptr %921, align 4, !tbaa !4
  %922 = load ptr, ptr %831, align 8, !tbaa !110
  %923 = getelementptr inbounds i32, ptr %922, i64 %917
  %924 = load i32, ptr %923, align 4, !tbaa !4
  %925 = sext i32 %924 to i64
  %926 = getelementptr inbounds i32, ptr %914, i64 %925
  %927 = load i32, ptr %926, align 4, !tbaa !4
  %928 = getelementptr inbounds i32, ptr %915, i64 %918
  store i32 %927, ptr %928, align 4, !tbaa !4
  %929 = trunc i64 %918 to i32
  %930 = load i32, ptr %923, align 4, !tbaa !4
  %931 = sext i32 %930 to i64
  %932 = getelementptr inbounds i32, ptr %914, i64 %931
  store i32 %929, ptr %932, align 4, !tbaa !4
  %933 = add nsw i64 %917, 1
  %934 = add nsw i64 %918, 1
  %935 = load i32, ptr %907, align 4, !tbaa !4
  %936 = sext i32 %935 to i64
  %937 = icmp slt i64 %933, %936
  br i1 %937, label %916, label %938, !llvm.loop !111

938:                                              ; preds = %920, %902
  %939 = phi i64 [ %843, %902 ], [ %934, %920 ]
  %940 = add nuw nsw i64 %842, 1
  %941 = icmp eq i64 %940, %801
  br i1 %941, label %832, label %841, !llvm.loop !112

942:                                              ; preds = %1026, %950
  %943 = phi i32 [ %956, %950 ], [ %1027, %1026 ]
  %944 = phi i64 [ %953, %950 ], [ %1028, %1026 ]
  %945 = icmp eq i64 %954, %804
  br i1 %945, label %946, label %950, !llvm.loop !113

946:                                              ; preds = %942, %832
  br i1 %799, label %947, label %1170

947:                                              ; preds = %946
  %948 = load ptr, ptr %49, align 8, !tbaa !102
  %949 = load ptr, ptr %37, align 8
  br label %1039

950:                                              ; preds = %942, %834
  %951 = phi i32 [ %839, %834 ], [ %943, %942 ]
  %952 = phi i64 [ 0, %834 ], [ %954, %942 ]
  %953 = phi i64 [ %833, %834 ], [ %944, %942 ]
  %954 = add nuw nsw i64 %952, 1
  %955 = getelementptr inbounds nuw i32, ptr %836, i64 %954
  %956 = load i32, ptr %955, align 4, !tbaa !4
  %957 = icmp slt i32 %951, %956
  br i1 %957, label %958, label %942

958:                                              ; preds = %950
  %959 = load ptr, ptr %837, align 8, !tbaa !114
  %960 = getelementptr inbounds nuw i32, ptr %840, i64 %952
  %961 = sext i32 %951 to i64
  br label %962

962:                                              ; preds = %1026, %958
  %963 = phi i32 [ %956, %958 ], [ %1027, %1026 ]
  %964 = phi i64 [ %961, %958 ], [ %1029, %1026 ]
  %965 = phi i64 [ %953, %958 ], [ %1028, %1026 ]
  %966 = getelementptr inbounds i32, ptr %959, i64 %964
  %967 = load i32, ptr %966, align 4, !tbaa !4
  %968 = sext i32 %967 to i64
  %969 = getelementptr inbounds i32, ptr %840, i64 %968
  %970 = load i32, ptr %969, align 4, !tbaa !4
  %971 = icmp slt i32 %970, 0
  br i1 %971, label %1026, label %972

972:                                              ; preds = %962
  %973 = load ptr, ptr %63, align 8
  %974 = load ptr, ptr %65, align 8
  br label %975

975:                                              ; preds = %1018, %972
  %976 = phi i32 [ %1022, %1018 ], [ %970, %972 ]
  %977 = phi i64 [ %1020, %1018 ], [ %965, %972 ]
  %978 = load i32, ptr %960, align 4, !tbaa !4
  %979 = icmp slt i32 %978, 0
  %980 = zext nneg i32 %976 to i64
  br i1 %979, label %1018, label %981

981:                                              ; preds = %975
  %982 = getelementptr inbounds nuw i32, ptr %973, i64 %980
  %983 = load ptr, ptr %59, align 8
  %984 = load ptr, ptr %51, align 8
  %985 = load ptr, ptr %61, align 8
  %986 = load ptr, ptr %49, align 8
  %987 = load ptr, ptr %65, align 8
  br label %988

988:                                              ; preds = %1003, %981
  %989 = phi i32 [ %978, %981 ], [ %1016, %1003 ]
  %990 = phi i64 [ %977, %981 ], [ %1014, %1003 ]
  %991 = load i32, ptr %982, align 4, !tbaa !4
  %992 = zext nneg i32 %989 to i64
  %993 = getelementptr inbounds nuw i32, ptr %973, i64 %992
  %994 = load i32, ptr %993, align 4, !tbaa !4
  %995 = icmp eq i32 %991, %994
  br i1 %995, label %996, label %1000

996:                                              ; preds = %988
  %997 = load ptr, ptr %43, align 8, !tbaa !58
  %998 = sext i32 %991 to i64
  %999 = getelementptr inbounds i32, ptr %997, i64 %998
  store i32 1, ptr %999, align 4, !tbaa !4
  br label %1173

1000:                                             ; preds = %988
  %1001 = load i64, ptr %838, align 8, !tbaa !39
  %1002 = icmp slt i64 %990, %1001
  br i1 %1002, label %1003, label %1173

1003:                                             ; preds = %1000
  %1004 = getelementptr inbounds i32, ptr %983, i64 %990
  store i32 %994, ptr %1004, align 4, !tbaa !4
  %1005 = sext i32 %991 to i64
  %1006 = getelementptr inbounds i32, ptr %984, i64 %1005
  %1007 = load i32, ptr %1006, align 4, !tbaa !4
  %1008 = getelementptr inbounds i32, ptr %985, i64 %990
  store i32 %1007, ptr %1008, align 4, !tbaa !4
  %1009 = trunc i64 %990 to i32
  store i32 %1009, ptr %1006, align 4, !tbaa !4
  %1010 = sext i32 %994 to i64
  %1011 = getelementptr inbounds i32, ptr %986, i64 %1010
  %1012 = load i32, ptr %1011, align 4, !tbaa !4
  %1013 = add nsw i32 %1012, 1
  store i32 %1013, ptr %1011, align 4, !tbaa !4
  %1014 = add nsw i64 %990, 1
  %1015 = getelementptr inbounds nuw i32, ptr %987, i64 %992
  %1016 = load i32, ptr %1015, align 4, !tbaa !4
  %1017 = icmp slt i32 %1016, 0
  br i1 %1017, label %1018, label %988, !llvm.loop !115

1018:                                             ; preds = %1003, %975
  %1019 = phi ptr [ %974, %975 ], [ %987, %1003 ]
  %1020 = phi i64 [ %977, %975 ], [ %1014, %1003 ]
  %1021 = getelementptr inbounds nuw i32, ptr %1019, i64 %980
  %1022 = load i32, ptr %1021, align 4, !tbaa !4
  %1023 = icmp slt i32 %1022, 0
  br i1 %1023, label %1024, label %975, !llvm.loop !116

1024:                                             ; preds = %1018
  %1025 = load i32, ptr %955, align 4, !tbaa !4
  br label %1026

1026:                                             ; preds = %1024, %962
  %1027 = phi i32 [ %963, %962 ], [ %1025, %1024 ]
  %1028 = phi i64 [ %965, %962 ], [ %1020, %1024 ]
  %1029 = add nsw i64 %964, 1
  %1030 = sext i32 %1027 to i64
  %1031 = icmp slt i64 %1029, %1030
  br i1 %1031, label %962, label %942, !llvm.loop !117

1032:                                             ; preds = %1051
  %1033 = icmp eq i64 %1052, 0
  br i1 %1033, label %1089, label %1034

1034:                                             ; preds = %1032
  %1035 = load ptr, ptr %51, align 8, !tbaa !103
  %1036 = load ptr, ptr %37, align 8, !tbaa !118
  %1037 = load ptr, ptr %59, align 8
  %1038 = load ptr, ptr %61, align 8
  br label %1055

1039:                                             ; preds = %1051, %947
  %1040 = phi i64 [ 0, %947 ], [ %1053, %1051 ]
  %1041 = phi i64 [ 0, %947 ], [ %1052, %1051 ]
  %1042 = getelementptr inbounds nuw i32, ptr %800, i64 %1040
  %1043 = load i32, ptr %1042, align 4, !tbaa !4
  %1044 = sext i32 %1043 to i64
  %1045 = getelementptr inbounds i32, ptr %948, i64 %1044
  %1046 = load i32, ptr %1045, align 4, !tbaa !4
  %1047 = icmp eq i32 %1046, 0
  br i1 %1047, label %1048, label %1051

1048:                                             ; preds = %1039
  %1049 = add nsw i64 %1041, 1
  %1050 = getelementptr inbounds i32, ptr %949, i64 %1041
  store i32 %1043, ptr %1050, align 4, !tbaa !4
  br label %1051

1051:                                             ; preds = %1048, %1039
  %1052 = phi i64 [ %1041, %1039 ], [ %1049, %1048 ]
  %1053 = add nuw nsw i64 %1040, 1
  %1054 = icmp eq i64 %1053, %801
  br i1 %1054, label %1032, label %1039, !llvm.loop !119

1055:                                             ; preds = %1065, %1034
  %1056 = phi i64 [ 0, %1034 ], [ %1067, %1065 ]
  %1057 = phi i64 [ %1052, %1034 ], [ %1066, %1065 ]
  %1058 = add nsw i64 %1057, -1
  %1059 = getelementptr inbounds i32, ptr %1036, i64 %1058
  %1060 = load i32, ptr %1059, align 4, !tbaa !4
  %1061 = sext i32 %1060 to i64
  %1062 = getelementptr inbounds i32, ptr %1035, i64 %1061
  %1063 = load i32, ptr %1062, align 4, !tbaa !4
  %1064 = icmp sgt i32 %1063, -1
  br i1 %1064, label %1069, label %1065

1065:                                             ; preds = %1084, %1055
  %1066 = phi i64 [ %1058, %1055 ], [ %1085, %1084 ]
  %1067 = add nuw nsw i64 %1056, 1
  %1068 = icmp eq i64 %1066, 0
  br i1 %1068, label %1089, label %1055, !llvm.loop !120

1069:                                             ; preds = %1084, %1055
  %1070 = phi i32 [ %1087, %1084 ], [ %1063, %1055 ]
  %1071 = phi i64 [ %1085, %1084 ], [ %1058, %1055 ]
  %1072 = zext nneg i32 %1070 to i64
  %1073 = getelementptr inbounds nuw i32, ptr %1037, i64 %1072
  %1074 = load i32, ptr %1073, align 4, !tbaa !4
  %1075 = sext i32 %1074 to i64
  %1076 = getelementptr inbounds i32, ptr %948, i64 %1075
  %1077 = load i32, ptr %1076, align 4, !tbaa !4
  %1078 = add nsw i32 %1077, -1
  store i32 %1078, ptr %1076, align 4, !tbaa !4
  %1079 = icmp eq i32 %1078, 0
  br i1 %1079, label %1080, label %1084

1080:                                             ; preds = %1069
  %1081 = load i32, ptr %1073, align 4, !tbaa !4
  %1082 = add nsw i64 %1071, 1
  %1083 = getelementptr inbounds i32, ptr %1036, i64 %1071
  store i32 %1081, ptr %1083, align 4, !tbaa !4
  br label %1084

1084:                                             ; preds = %1080, %1069
  %1085 = phi i64 [ %1071, %1069 ], [ %1082, %1080 ]
  %1086 = getelementptr inbounds nuw i32, ptr %1038, i64 %1072
  %1087 = load i32, ptr %1086, align 4, !tbaa !4
  %1088 = icmp sgt i32 %1087, -1
  br i1 %1088, label %1069, label %1065, !llvm.loop !121

1089:                                             ; preds = %1065, %1032
  %1090 = phi i64 [ 0, %1032 ], [ %1067, %1065 ]
  %1091 = icmp slt i64 %1090, %801
  br i1 %1091, label %1092, label %1170

1092:                                             ; preds = %1089
  %1093 = load ptr, ptr %51, align 8
  %1094 = load ptr, ptr %59, align 8
  %1095 = load ptr, ptr %61, align 8
  br label %1098

1096:                                             ; preds = %1128
  %1097 = load ptr, ptr %53, align 8, !tbaa !122
  br label %1135

1098:                                             ; preds = %1128, %1092
  %1099 = phi i32 [ %1129, %1128 ], [ -1, %1092 ]
  %1100 = phi i64 [ %1130, %1128 ], [ 0, %1092 ]
  %1101 = getelementptr inbounds nuw i32, ptr %800, i64 %1100
  %1102 = load i32, ptr %1101, align 4, !tbaa !4
  %1103 = sext i32 %1102 to i64
  %1104 = getelementptr inbounds i32, ptr %948, i64 %1103
  %1105 = load i32, ptr %1104, align 4, !tbaa !4
  %1106 = icmp eq i32 %1105, 0
  br i1 %1106, label %1128, label %1107

1107:                                             ; preds = %1098
  %1108 = getelementptr inbounds i32, ptr %1093, i64 %1103
  %1109 = load i32, ptr %1108, align 4, !tbaa !4
  %1110 = icmp sgt i32 %1109, -1
  br i1 %1110, label %1111, label %1128

1111:                                             ; preds = %1107
  %1112 = load ptr, ptr %53, align 8
  br label %1113

1113:                                             ; preds = %1124, %1111
  %1114 = phi i32 [ %1109, %1111 ], [ %1126, %1124 ]
  %1115 = zext nneg i32 %1114 to i64
  %1116 = getelementptr inbounds nuw i32, ptr %1094, i64 %1115
  %1117 = load i32, ptr %1116, align 4, !tbaa !4
  %1118 = sext i32 %1117 to i64
  %1119 = getelementptr inbounds i32, ptr %948, i64 %1118
  %1120 = load i32, ptr %1119, align 4, !tbaa !4
  %1121 = icmp eq i32 %1120, 0
  br i1 %1121, label %1124, label %1122

1122:                                             ; preds = %1113
  %1123 = getelementptr inbounds i32, ptr %1112, i64 %1118
  store i32 %1102, ptr %1123, align 4, !tbaa !4
  br label %1124

1124:                                             ; preds = %1122, %1113
  %1125 = getelementptr inbounds nuw i32, ptr %1095, i64 %1115
  %1126 = load i32, ptr %1125, align 4, !tbaa !4
  %1127 = icmp sgt i32 %1126, -1
  br i1 %1127, label %1113, label %1128, !llvm.loop !123

1128:                                             ; preds = %1124, %1107, %1098
  %1129 = phi i32 [ %1099, %1098 ], [ %1102, %1107 ], [ %1102, %1124 ]
  %1130 = add nuw nsw i64 %1100, 1
  %1131 = icmp eq i64 %1130, %801
  br i1 %1131, label %1096, label %1098, !llvm.loop !124

1132:                                             ; preds = %1135
  %1133 = getelementptr inbounds nuw i8, ptr %798, i64 96
  %1134 = load ptr, ptr %1133, align 8, !tbaa !125
  br label %1143

1135:                                             ; preds = %1135, %1096
  %1136 = phi i64 [ 0, %1096 ], [ %1141, %1135 ]
  %1137 = phi i32 [ %1129, %1096 ], [ %1140, %1135 ]
  %1138 = sext i32 %1137 to i64
  %1139 = getelementptr inbounds i32, ptr %1097, i64 %1138
  %1140 = load i32, ptr %1139, align 4, !tbaa !4
  %1141 = add nuw nsw i64 %1136, 1
  %1142 = icmp eq i64 %1141, %801
  br i1 %1142, label %1132, label %1135, !llvm.loop !126

1143:                                             ; preds = %1143, %1132
  %1144 = phi i32 [ %1151, %1143 ], [ %1140, %1132 ]
  %1145 = phi i32 [ %1149, %1143 ], [ 0, %1132 ]
  %1146 = sext i32 %1144 to i64
  %1147 = getelementptr inbounds i32, ptr %1134, i64 %1146
  %1148 = load i32, ptr %1147, align 4, !tbaa !4
  %1149 = or i32 %1148, %1145
  %1150 = getelementptr inbounds i32, ptr %1097, i64 %1146
  %1151 = load i32, ptr %1150, align 4, !tbaa !4
  %1152 = icmp eq i32 %1151, %1140
  br i1 %1152, label %1153, label %1143, !llvm.loop !127

1153:                                             ; preds = %1143
  %1154 = icmp eq i32 %1149, 0
  %1155 = load ptr, ptr %43, align 8, !tbaa !58
  br label %1156

1156:                                             ; preds = %1156, %1153
  %1157 = phi i32 [ %1168, %1156 ], [ %1140, %1153 ]
  %1158 = sext i32 %1157 to i64
  %1159 = getelementptr inbounds i32, ptr %1134, i64 %1158
  %1160 = load i32, ptr %1159, align 4, !tbaa !4
  %1161 = icmp ne i32 %1160, 0
  %1162 = select i1 %1161, i1 true, i1 %1154
  %1163 = zext i1 %1162 to i32
  %1164 = getelementptr inbounds i32, ptr %1155, i64 %1158
  %1165 = load i32, ptr %1164, align 4, !tbaa !4
  %1166 = or i32 %1165, %1163
  store i32 %1166, ptr %1164, align 4, !tbaa !4
  %1167 = getelementptr inbounds i32, ptr %1097, i64 %1158
  %1168 = load i32, ptr %1167, align 4, !tbaa !4
  %1169 = icmp eq i32 %1168, %1140
  br i1 %1169, label %1170, label %1156, !llvm.loop !128

1170:                                             ; preds = %1156, %1089, %946
  %1171 = phi i64 [ 0, %946 ], [ %1090, %1089 ], [ %1090, %1156 ]
  %1172 = icmp ne i64 %1171, %801
  br label %1173

1173:                                             ; preds = %1170, %1000, %996, %916, %887
  %1174 = phi i1 [ %1172, %1170 ], [ true, %1000 ], [ true, %916 ], [ true, %996 ], [ true, %887 ]
  br i1 %799, label %1175, label %1189

1175:                                             ; preds = %1173, %784
  %1176 = phi i1 [ %1174, %1173 ], [ true, %784 ]
  %1177 = phi ptr [ %800, %1173 ], [ %768, %784 ]
  %1178 = phi i64 [ %801, %1173 ], [ %764, %784 ]
  %1179 = phi i64 [ %802, %1173 ], [ %781, %784 ]
  %1180 = load ptr, ptr %21, align 8, !tbaa !89
  br label %1181

1181:                                             ; preds = %1181, %1175
  %1182 = phi i64 [ 0, %1175 ], [ %1187, %1181 ]
  %1183 = getelementptr inbounds nuw i32, ptr %1177, i64 %1182
  %1184 = load i32, ptr %1183, align 4, !tbaa !4
  %1185 = sext i32 %1184 to i64
  %1186 = getelementptr inbounds i32, ptr %1180, i64 %1185
  store i32 0, ptr %1186, align 4, !tbaa !4
  %1187 = add nuw nsw i64 %1182, 1
  %1188 = icmp eq i64 %1187, %1178
  br i1 %1188, label %1189, label %1181, !llvm.loop !90

1189:                                             ; preds = %1181, %1173
  %1190 = phi i1 [ %1174, %1173 ], [ %1176, %1181 ]
  %1191 = phi ptr [ %800, %1173 ], [ %1177, %1181 ]
  %1192 = phi i64 [ %801, %1173 ], [ %1178, %1181 ]
  %1193 = phi i64 [ %802, %1173 ], [ %1179, %1181 ]
  br i1 %1190, label %1221, label %1194

1194:                                             ; preds = %1189
  %1195 = load i64, ptr %3, align 8, !tbaa !49
  %1196 = icmp sgt i64 %1195, 0
  br i1 %1196, label %1197, label %1199

1197:                                             ; preds = %1194
  %1198 = load ptr, ptr %35, align 8, !tbaa !51
  br label %1203

1199:                                             ; preds = %1203, %1194
  %1200 = icmp sgt i64 %1192, 0
  br i1 %1200, label %1201, label %1211

1201:                                             ; preds = %1199
  %1202 = load ptr, ptr %35, align 8, !tbaa !51
  br label %1212

1203:                                             ; preds = %1203, %1197
  %1204 = phi i64 [ 0, %1197 ], [ %1209, %1203 ]
  %1205 = getelementptr inbounds nuw i32, ptr %2, i64 %1204
  %1206 = load i32, ptr %1205, align 4, !tbaa !4
  %1207 = sext i32 %1206 to i64
  %1208 = getelementptr inbounds i32, ptr %1198, i64 %1207
  store i32 0, ptr %1208, align 4, !tbaa !4
  %1209 = add nuw nsw i64 %1204, 1
  %1210 = icmp eq i64 %1209, %1195
  br i1 %1210, label %1199, label %1203, !llvm.loop !129

1211:                                             ; preds = %1212, %1199
  store i64 %1192, ptr %3, align 8, !tbaa !49
  br label %1227

1212:                                             ; preds = %1212, %1201
  %1213 = phi i64 [ 0, %1201 ], [ %1219, %1212 ]
  %1214 = getelementptr inbounds nuw i32, ptr %1191, i64 %1213
  %1215 = load i32, ptr %1214, align 4, !tbaa !4
  %1216 = getelementptr inbounds nuw i32, ptr %2, i64 %1213
  store i32 %1215, ptr %1216, align 4, !tbaa !4
  %1217 = sext i32 %1215 to i64
  %1218 = getelementptr inbounds i32, ptr %1202, i64 %1217
  store i32 1, ptr %1218, align 4, !tbaa !4
  %1219 = add nuw nsw i64 %1213, 1
  %1220 = icmp eq i64 %1219, %1192
  br i1 %1220, label %1211, label %1212, !llvm.loop !130

1221:                                             ; preds = %1189, %789, %786
  %1222 = phi i64 [ %1193, %1189 ], [ 0, %786 ], [ 0, %789 ]
  %1223 = icmp slt i64 %1222, %134
  %1224 = add nuw nsw i32 %166, 1
  %1225 = icmp samesign ult i32 %166, 5
  %1226 = select i1 %1223, i1 %1225, i1 false
  br i1 %1226, label %165, label %1227, !llvm.loop !131

1227:                                             ; preds = %1221, %1211, %523, %520, %500
  %1228 = phi i64 [ %1193, %1211 ], [ %134, %1221 ], [ %134, %500 ], [ %134, %520 ], [ %134, %523 ]
  %1229 = add nuw nsw i64 %133, 1
  %1230 = load i64, ptr %1, align 8, !tbaa !53
  %1231 = icmp slt i64 %1229, %1230
  br i1 %1231, label %132, label %141, !llvm.loop !132
}

; Function Attrs: nocallback nofree nounwind willreturn memory(argmem: write)
declare void @llvm.memset.p0.i64(ptr writeonly captures(none), i8, i64, i1 immarg) #3

; Function Attrs: nofree norecurse nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable
define internal fastcc i64 @keep(ptr noundef nonnull captures(none) %0, ptr noundef readonly captures(none) %1, i64 noundef %2, ptr noundef writeonly captures(none) %3) unnamed_addr #4 {
  %5 = load ptr, ptr %0, align 8, !tbaa !41
  %6 = getelementptr inbounds nuw i8, ptr %0, i64 200
  %7 = load i32, ptr %6, align 8, !tbaa !65
  %8 = add nsw i32 %7, 1
  store i32 %8, ptr %6, align 8, !tbaa !65
  %9 = icmp sgt i64 %2, 0
  br i1 %9, label %10, label %15

10:                                               ; preds = %4
  %11 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %12 = load ptr, ptr %11, align 8, !tbaa !89
  %13 = getelementptr inbounds nuw i8, ptr %5, i64 224
  %14 = getelementptr inbounds nuw i8, ptr %0, i64 80
  br label %25

15:                                               ; preds = %45, %4
  %16 = phi i64 [ 0, %4 ], [ %46, %45 ]
  %17 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %18 = load i64, ptr %17, align 8, !tbaa !66
  %19 = icmp sgt i64 %18, 0
  br i1 %19, label %20, label %49

20:                                               ; preds = %15
  %21 = getelementptr inbounds nuw i8, ptr %5, i64 200
  %22 = load ptr, ptr %21, align 8, !tbaa !67
  %23 = getelementptr inbounds nuw i8, ptr %0, i64 88
  %24 = load ptr, ptr %23, align 8, !tbaa !133
  br label %67

25:                                               ; preds = %45, %10
  %26 = phi i64 [ 0, %10 ], [ %46, %45 ]
  %27 = phi i64 [ 0, %10 ], [ %47, %45 ]
  %28 = getelementptr inbounds nuw i32, ptr %1, i64 %27
  %29 = load i32, ptr %28, align 4, !tbaa !4
  %30 = sext i32 %29 to i64
  %31 = getelementptr inbounds i32, ptr %12, i64 %30
  %32 = load i32, ptr %31, align 4, !tbaa !4
  %33 = icmp eq i32 %32, 0
  br i1 %33, label %45, label %34

34:                                               ; preds = %25
  %35 = load ptr, ptr %13, align 8, !tbaa !78
  %36 = getelementptr i32, ptr %35, i64 %30
  %37 = getelementptr i8, ptr %36, i64 4
  %38 = load i32, ptr %37, align 4, !tbaa !4
  %39 = load i32, ptr %36, align 4, !tbaa !4
  %40 = icmp sgt i32 %38, %39
  br i1 %40, label %41, label %45

41:                                               ; preds = %34
  %42 = load ptr, ptr %14, align 8, !tbaa !118
  %43 = add nsw i64 %26, 1
  %44 = getelementptr inbounds i32, ptr %42, i64 %26
  store i32 %29, ptr %44, align 4, !tbaa !4
  br label %45

45:                                               ; preds = %41, %34, %25
  %46 = phi i64 [ %43, %41 ], [ %26, %34 ], [ %26, %25 ]
  %47 = add nuw nsw i64 %27, 1
  %48 = icmp eq i64 %47, %2
  br i1 %48, label %15, label %25, !llvm.loop !134

49:                                               ; preds = %67, %15
  %50 = phi i64 [ 0, %15 ], [ %18, %67 ]
  %51 = or i64 %16, %50
  %52 = icmp eq i64 %51, 0
  br i1 %52, label %212, label %53

53:                                               ; preds = %49
  %54 = icmp ne i64 %16, 0
  %55 = getelementptr inbounds nuw i8, ptr %0, i64 88
  %56 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %57 = getelementptr inbounds nuw i8, ptr %5, i64 120
  %58 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %59 = getelementptr inbounds nuw i8, ptr %5, i64 128
  %60 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %61 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %62 = getelementptr inbounds nuw i8, ptr %5, i64 136
  %63 = getelementptr inbounds nuw i8, ptr %5, i64 144
  %64 = getelementptr inbounds nuw i8, ptr %5, i64 104
  %65 = getelementptr inbounds nuw i8, ptr %5, i64 112
  %66 = getelementptr inbounds nuw i8, ptr %0, i64 32
  br label %157

67:                                               ; preds = %67, %20
  %68 = phi i64 [ 0, %20 ], [ %71, %67 ]
  %69 = getelementptr inbounds nuw i32, ptr %22, i64 %68
  %70 = load i32, ptr %69, align 4, !tbaa !4
  %71 = add nuw nsw i64 %68, 1
  %72 = getelementptr inbounds nuw i32, ptr %24, i64 %68
  store i32 %70, ptr %72, align 4, !tbaa !4
  %73 = icmp eq i64 %71, %18
  br i1 %73, label %49, label %67, !llvm.loop !135

74:                                               ; preds = %208
  br i1 %173, label %75, label %165

75:                                               ; preds = %157, %74
  %76 = phi i64 [ %160, %157 ], [ %209, %74 ]
  %77 = phi i64 [ %161, %157 ], [ %167, %74 ]
  %78 = load ptr, ptr %60, align 8, !tbaa !118
  %79 = add nsw i64 %76, -1
  %80 = getelementptr inbounds i32, ptr %78, i64 %79
  %81 = load i32, ptr %80, align 4, !tbaa !4
  %82 = load ptr, ptr %61, align 8, !tbaa !136
  %83 = sext i32 %81 to i64
  %84 = getelementptr inbounds i32, ptr %82, i64 %83
  %85 = load i32, ptr %84, align 4, !tbaa !4
  %86 = icmp eq i32 %85, %8
  br i1 %86, label %151, label %87, !llvm.loop !137

87:                                               ; preds = %75
  store i32 %8, ptr %84, align 4, !tbaa !4
  %88 = add nsw i64 %159, 1
  %89 = getelementptr inbounds i32, ptr %3, i64 %159
  store i32 %81, ptr %89, align 4, !tbaa !4
  %90 = load ptr, ptr %62, align 8, !tbaa !84
  %91 = getelementptr inbounds i32, ptr %90, i64 %83
  %92 = load i32, ptr %91, align 4, !tbaa !4
  %93 = add nsw i32 %81, 1
  %94 = sext i32 %93 to i64
  %95 = getelementptr inbounds i32, ptr %90, i64 %94
  %96 = load i32, ptr %95, align 4, !tbaa !4
  %97 = icmp slt i32 %92, %96
  br i1 %97, label %98, label %102

98:                                               ; preds = %87
  %99 = load ptr, ptr %56, align 8, !tbaa !138
  %100 = load ptr, ptr %63, align 8, !tbaa !85
  %101 = sext i32 %92 to i64
  br label %113

102:                                              ; preds = %113, %87
  %103 = load ptr, ptr %64, align 8, !tbaa !21
  %104 = getelementptr inbounds i32, ptr %103, i64 %83
  %105 = load i32, ptr %104, align 4, !tbaa !4
  %106 = getelementptr inbounds i32, ptr %103, i64 %94
  %107 = load i32, ptr %106, align 4, !tbaa !4
  %108 = icmp slt i32 %105, %107
  br i1 %108, label %109, label %151, !llvm.loop !137

109:                                              ; preds = %102
  %110 = load ptr, ptr %56, align 8, !tbaa !138
  %111 = load ptr, ptr %65, align 8, !tbaa !23
  %112 = sext i32 %105 to i64
  br label %123, !llvm.loop !137

113:                                              ; preds = %113, %98
  %114 = phi i64 [ %101, %98 ], [ %119, %113 ]
  %115 = getelementptr inbounds i32, ptr %100, i64 %114
  %116 = load i32, ptr %115, align 4, !tbaa !4
  %117 = sext i32 %116 to i64
  %118 = getelementptr inbounds i32, ptr %99, i64 %117
  store i32 %8, ptr %118, align 4, !tbaa !4
  %119 = add nsw i64 %114, 1
  %120 = load i32, ptr %95, align 4, !tbaa !4
  %121 = sext i32 %120 to i64
  %122 = icmp slt i64 %119, %121
  br i1 %122, label %113, label %102, !llvm.loop !139

123:                                              ; preds = %144, %109
  %124 = phi i32 [ %107, %109 ], [ %145, %144 ]
  %125 = phi i64 [ %112, %109 ], [ %147, %144 ]
  %126 = phi i64 [ %77, %109 ], [ %146, %144 ]
  %127 = getelementptr inbounds i32, ptr %111, i64 %125
  %128 = load i32, ptr %127, align 4, !tbaa !4
  %129 = sext i32 %128 to i64
  %130 = getelementptr inbounds i32, ptr %110, i64 %129
  %131 = load i32, ptr %130, align 4, !tbaa !4
  %132 = icmp eq i32 %131, %8
  br i1 %132, label %144, label %133

133:                                              ; preds = %123
  %134 = load ptr, ptr %66, align 8, !tbaa !68
  %135 = getelementptr inbounds i32, ptr %134, i64 %129
  %136 = load i32, ptr %135, align 4, !tbaa !4
  %137 = icmp eq i32 %136, %8
  br i1 %137, label %144, label %138

138:                                              ; preds = %133
  store i32 %8, ptr %135, align 4, !tbaa !4
  %139 = load i32, ptr %127, align 4, !tbaa !4
  %140 = load ptr, ptr %55, align 8, !tbaa !133
  %141 = add nsw i64 %126, 1
  %142 = getelementptr inbounds i32, ptr %140, i64 %126
  store i32 %139, ptr %142, align 4, !tbaa !4
  %143 = load i32, ptr %106, align 4, !tbaa !4
  br label %144

144:                                              ; preds = %138, %133, %123
  %145 = phi i32 [ %143, %138 ], [ %124, %133 ], [ %124, %123 ]
  %146 = phi i64 [ %141, %138 ], [ %126, %133 ], [ %126, %123 ]
  %147 = add nsw i64 %125, 1
  %148 = sext i32 %145 to i64
  %149 = icmp slt i64 %147, %148
  br i1 %149, label %123, label %150, !llvm.loop !140

150:                                              ; preds = %144
  br label %151, !llvm.loop !137

151:                                              ; preds = %150, %102, %75
  %152 = phi i64 [ %77, %75 ], [ %146, %150 ], [ %77, %102 ]
  %153 = phi i64 [ %159, %75 ], [ %88, %150 ], [ %88, %102 ]
  %154 = icmp ne i64 %79, 0
  %155 = icmp ne i64 %152, 0
  %156 = select i1 %154, i1 true, i1 %155
  br i1 %156, label %157, label %212

157:                                              ; preds = %151, %53
  %158 = phi i1 [ %54, %53 ], [ %154, %151 ]
  %159 = phi i64 [ 0, %53 ], [ %153, %151 ]
  %160 = phi i64 [ %16, %53 ], [ %79, %151 ]
  %161 = phi i64 [ %50, %53 ], [ %152, %151 ]
  br i1 %158, label %75, label %162

162:                                              ; preds = %157
  %163 = load ptr, ptr %55, align 8, !tbaa !133
  %164 = load ptr, ptr %56, align 8, !tbaa !138
  br label %165

165:                                              ; preds = %162, %74
  %166 = phi i64 [ %167, %74 ], [ %161, %162 ]
  %167 = add nsw i64 %166, -1
  %168 = getelementptr inbounds i32, ptr %163, i64 %167
  %169 = load i32, ptr %168, align 4, !tbaa !4
  %170 = sext i32 %169 to i64
  %171 = getelementptr inbounds i32, ptr %164, i64 %170
  %172 = load i32, ptr %171, align 4, !tbaa !4
  %173 = icmp ne i32 %172, %8
  br i1 %173, label %174, label %208, !llvm.loop !137

174:                                              ; preds = %165
  %175 = load ptr, ptr %57, align 8, !tbaa !77
  %176 = getelementptr inbounds i32, ptr %175, i64 %170
  %177 = load i32, ptr %176, align 4, !tbaa !4
  %178 = getelementptr i8, ptr %176, i64 4
  %179 = load i32, ptr %178, align 4, !tbaa !4
  %180 = icmp slt i32 %177, %179
  br i1 %180, label %181, label %199

181:                                              ; preds = %174
  %182 = load ptr, ptr %58, align 8, !tbaa !89
  %183 = load ptr, ptr %59, align 8, !tbaa !76
  %184 = sext i32 %177 to i64
  br label %185

185:                                              ; preds = %193, %181
  %186 = phi i64 [ %184, %181 ], [ %194, %193 ]
  %187 = getelementptr inbounds i32, ptr %183, i64 %186
  %188 = load i32, ptr %187, align 4, !tbaa !4
  %189 = sext i32 %188 to i64
  %190 = getelementptr inbounds i32, ptr %182, i64 %189
  %191 = load i32, ptr %190, align 4, !tbaa !4
  %192 = icmp eq i32 %191, 0
  br i1 %192, label %193, label %197

193:                                              ; preds = %185
  %194 = add nsw i64 %186, 1
  %195 = trunc i64 %194 to i32
  %196 = icmp eq i32 %179, %195
  br i1 %196, label %217, label %185, !llvm.loop !141

197:                                              ; preds = %185
  %198 = trunc nsw i64 %186 to i32
  br label %199

199:                                              ; preds = %197, %174
  %200 = phi i32 [ %177, %174 ], [ %198, %197 ]
  %201 = icmp eq i32 %200, %179
  br i1 %201, label %217, label %202

202:                                              ; preds = %199
  %203 = load ptr, ptr %59, align 8, !tbaa !76
  %204 = sext i32 %200 to i64
  %205 = getelementptr inbounds i32, ptr %203, i64 %204
  %206 = load i32, ptr %205, align 4, !tbaa !4
  %207 = load ptr, ptr %60, align 8, !tbaa !118
  store i32 %206, ptr %207, align 4, !tbaa !4
  br label %208

208:                                              ; preds = %202, %165
  %209 = phi i64 [ 0, %165 ], [ 1, %202 ]
  %210 = icmp ne i64 %167, 0
  %211 = or i1 %173, %210
  br i1 %211, label %74, label %212

212:                                              ; preds = %208, %151, %49
  %213 = phi i64 [ %159, %208 ], [ 0, %49 ], [ %153, %151 ]
  %214 = getelementptr inbounds nuw i8, ptr %0, i64 208
  %215 = load i64, ptr %214, align 8, !tbaa !56
  %216 = add nsw i64 %215, %213
  store i64 %216, ptr %214, align 8, !tbaa !56
  br label %217

217:                                              ; preds = %212, %199, %193
  %218 = phi i64 [ %213, %212 ], [ -1, %193 ], [ -1, %199 ]
  ret i64 %218
}

; Function Attrs: nofree norecurse nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable
define internal fastcc void @count_readers(ptr noundef nonnull captures(none) %0, i64 noundef %1) unnamed_addr #4 {
  %3 = load ptr, ptr %0, align 8, !tbaa !41
  %4 = icmp sgt i64 %1, 0
  br i1 %4, label %5, label %33

5:                                                ; preds = %2
  %6 = getelementptr inbounds nuw i8, ptr %0, i64 112
  %7 = load ptr, ptr %6, align 8, !tbaa !142
  %8 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %9 = load ptr, ptr %8, align 8, !tbaa !91
  %10 = getelementptr inbounds nuw i8, ptr %0, i64 120
  %11 = load ptr, ptr %10, align 8, !tbaa !143
  br label %22

12:                                               ; preds = %22
  %13 = getelementptr inbounds nuw i8, ptr %3, i64 104
  %14 = load ptr, ptr %13, align 8, !tbaa !21
  %15 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %16 = load ptr, ptr %15, align 8, !tbaa !91
  %17 = getelementptr inbounds nuw i8, ptr %3, i64 120
  %18 = getelementptr inbounds nuw i8, ptr %3, i64 112
  %19 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %20 = getelementptr inbounds nuw i8, ptr %3, i64 128
  %21 = getelementptr inbounds nuw i8, ptr %0, i64 112
  br label %37

22:                                               ; preds = %22, %5
  %23 = phi i64 [ 0, %5 ], [ %31, %22 ]
  %24 = getelementptr inbounds nuw i32, ptr %9, i64 %23
  %25 = load i32, ptr %24, align 4, !tbaa !4
  %26 = sext i32 %25 to i64
  %27 = getelementptr inbounds i32, ptr %7, i64 %26
  store i32 0, ptr %27, align 4, !tbaa !4
  %28 = load i32, ptr %24, align 4, !tbaa !4
  %29 = sext i32 %28 to i64
  %30 = getelementptr inbounds i32, ptr %11, i64 %29
  store i32 -1, ptr %30, align 4, !tbaa !4
  %31 = add nuw nsw i64 %23, 1
  %32 = icmp eq i64 %31, %1
  br i1 %32, label %12, label %22, !llvm.loop !144

33:                                               ; preds = %51, %2
  %34 = getelementptr inbounds nuw i8, ptr %0, i64 208
  %35 = load i64, ptr %34, align 8, !tbaa !56
  %36 = add nsw i64 %35, %1
  store i64 %36, ptr %34, align 8, !tbaa !56
  ret void

37:                                               ; preds = %51, %12
  %38 = phi i64 [ 0, %12 ], [ %52, %51 ]
  %39 = getelementptr inbounds nuw i32, ptr %16, i64 %38
  %40 = load i32, ptr %39, align 4, !tbaa !4
  %41 = sext i32 %40 to i64
  %42 = getelementptr i32, ptr %14, i64 %41
  %43 = load i32, ptr %42, align 4, !tbaa !4
  %44 = getelementptr i8, ptr %42, i64 4
  %45 = load i32, ptr %44, align 4, !tbaa !4
  %46 = icmp slt i32 %43, %45
  br i1 %46, label %47, label %51

47:                                               ; preds = %37
  %48 = load ptr, ptr %17, align 8, !tbaa !77
  %49 = load ptr, ptr %18, align 8, !tbaa !23
  %50 = sext i32 %43 to i64
  br label %54

51:                                               ; preds = %71, %37
  %52 = add nuw nsw i64 %38, 1
  %53 = icmp eq i64 %52, %1
  br i1 %53, label %33, label %37, !llvm.loop !145

54:                                               ; preds = %71, %47
  %55 = phi i32 [ %40, %47 ], [ %72, %71 ]
  %56 = phi i64 [ %50, %47 ], [ %73, %71 ]
  %57 = getelementptr inbounds i32, ptr %49, i64 %56
  %58 = load i32, ptr %57, align 4, !tbaa !4
  %59 = sext i32 %58 to i64
  %60 = getelementptr i32, ptr %48, i64 %59
  %61 = load i32, ptr %60, align 4, !tbaa !4
  %62 = getelementptr i8, ptr %60, i64 4
  %63 = load i32, ptr %62, align 4, !tbaa !4
  %64 = icmp slt i32 %61, %63
  br i1 %64, label %65, label %71

65:                                               ; preds = %54
  %66 = load ptr, ptr %19, align 8, !tbaa !89
  %67 = load ptr, ptr %20, align 8, !tbaa !76
  %68 = sext i32 %61 to i64
  br label %80

69:                                               ; preds = %95
  %70 = load i32, ptr %39, align 4, !tbaa !4
  br label %71

71:                                               ; preds = %69, %54
  %72 = phi i32 [ %70, %69 ], [ %55, %54 ]
  %73 = add nsw i64 %56, 1
  %74 = sext i32 %72 to i64
  %75 = getelementptr i32, ptr %14, i64 %74
  %76 = getelementptr i8, ptr %75, i64 4
  %77 = load i32, ptr %76, align 4, !tbaa !4
  %78 = sext i32 %77 to i64
  %79 = icmp slt i64 %73, %78
  br i1 %79, label %54, label %51, !llvm.loop !146

80:                                               ; preds = %95, %65
  %81 = phi i32 [ %58, %65 ], [ %96, %95 ]
  %82 = phi i64 [ %68, %65 ], [ %97, %95 ]
  %83 = getelementptr inbounds i32, ptr %67, i64 %82
  %84 = load i32, ptr %83, align 4, !tbaa !4
  %85 = sext i32 %84 to i64
  %86 = getelementptr inbounds i32, ptr %66, i64 %85
  %87 = load i32, ptr %86, align 4, !tbaa !4
  %88 = icmp eq i32 %87, 0
  br i1 %88, label %95, label %89

89:                                               ; preds = %80
  %90 = load ptr, ptr %21, align 8, !tbaa !142
  %91 = getelementptr inbounds i32, ptr %90, i64 %85
  %92 = load i32, ptr %91, align 4, !tbaa !4
  %93 = add nsw i32 %92, 1
  store i32 %93, ptr %91, align 4, !tbaa !4
  %94 = load i32, ptr %57, align 4, !tbaa !4
  br label %95

95:                                               ; preds = %89, %80
  %96 = phi i32 [ %81, %80 ], [ %94, %89 ]
  %97 = add nsw i64 %82, 1
  %98 = sext i32 %96 to i64
  %99 = getelementptr i32, ptr %48, i64 %98
  %100 = getelementptr i8, ptr %99, i64 4
  %101 = load i32, ptr %100, align 4, !tbaa !4
  %102 = sext i32 %101 to i64
  %103 = icmp slt i64 %97, %102
  br i1 %103, label %80, label %69, !llvm.loop !147
}

; Function Attrs: nofree nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable
define internal fastcc i32 @worth(ptr noundef nonnull readonly captures(none) %0, i32 noundef %1, i32 noundef %2) unnamed_addr #2 {
  %4 = load ptr, ptr %0, align 8, !tbaa !41
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 120
  %6 = load ptr, ptr %5, align 8, !tbaa !143
  %7 = sext i32 %1 to i64
  %8 = getelementptr inbounds i32, ptr %6, i64 %7
  %9 = load i32, ptr %8, align 4, !tbaa !4
  %10 = icmp sgt i32 %9, -1
  br i1 %10, label %110, label %11

11:                                               ; preds = %3
  %12 = getelementptr inbounds nuw i8, ptr %4, i64 56
  %13 = load ptr, ptr %12, align 8, !tbaa !29
  %14 = getelementptr inbounds i32, ptr %13, i64 %7
  %15 = load i32, ptr %14, align 4, !tbaa !4
  store i32 %15, ptr %8, align 4, !tbaa !4
  %16 = icmp sgt i32 %2, 59
  br i1 %16, label %110, label %17

17:                                               ; preds = %11
  %18 = getelementptr inbounds nuw i8, ptr %4, i64 104
  %19 = load ptr, ptr %18, align 8, !tbaa !21
  %20 = getelementptr i32, ptr %19, i64 %7
  %21 = load i32, ptr %20, align 4, !tbaa !4
  %22 = getelementptr i8, ptr %20, i64 4
  %23 = load i32, ptr %22, align 4, !tbaa !4
  %24 = icmp slt i32 %21, %23
  br i1 %24, label %25, label %37

25:                                               ; preds = %17
  %26 = getelementptr inbounds nuw i8, ptr %4, i64 120
  %27 = getelementptr inbounds nuw i8, ptr %4, i64 112
  %28 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %29 = getelementptr inbounds nuw i8, ptr %4, i64 128
  %30 = getelementptr inbounds nuw i8, ptr %0, i64 112
  %31 = add nsw i32 %2, 1
  %32 = sext i32 %21 to i64
  %33 = load ptr, ptr %26, align 8, !tbaa !77
  %34 = load ptr, ptr %27, align 8, !tbaa !23
  br label %41

35:                                               ; preds = %61
  %36 = load ptr, ptr %5, align 8, !tbaa !143
  br label %37

37:                                               ; preds = %35, %17
  %38 = phi ptr [ %6, %17 ], [ %36, %35 ]
  %39 = phi i32 [ %15, %17 ], [ %67, %35 ]
  %40 = getelementptr inbounds i32, ptr %38, i64 %7
  store i32 %39, ptr %40, align 4, !tbaa !4
  br label %110

41:                                               ; preds = %61, %25
  %42 = phi ptr [ %19, %25 ], [ %62, %61 ]
  %43 = phi ptr [ %34, %25 ], [ %63, %61 ]
  %44 = phi ptr [ %33, %25 ], [ %64, %61 ]
  %45 = phi ptr [ %34, %25 ], [ %65, %61 ]
  %46 = phi ptr [ %33, %25 ], [ %66, %61 ]
  %47 = phi i64 [ %32, %25 ], [ %68, %61 ]
  %48 = phi i32 [ %15, %25 ], [ %67, %61 ]
  %49 = getelementptr inbounds i32, ptr %45, i64 %47
  %50 = load i32, ptr %49, align 4, !tbaa !4
  %51 = sext i32 %50 to i64
  %52 = getelementptr i32, ptr %46, i64 %51
  %53 = load i32, ptr %52, align 4, !tbaa !4
  %54 = getelementptr i8, ptr %52, i64 4
  %55 = load i32, ptr %54, align 4, !tbaa !4
  %56 = icmp slt i32 %53, %55
  br i1 %56, label %57, label %61

57:                                               ; preds = %41
  %58 = sext i32 %53 to i64
  br label %74

59:                                               ; preds = %97
  %60 = load ptr, ptr %18, align 8, !tbaa !21
  br label %61

61:                                               ; preds = %59, %41
  %62 = phi ptr [ %42, %41 ], [ %60, %59 ]
  %63 = phi ptr [ %43, %41 ], [ %98, %59 ]
  %64 = phi ptr [ %44, %41 ], [ %99, %59 ]
  %65 = phi ptr [ %45, %41 ], [ %98, %59 ]
  %66 = phi ptr [ %46, %41 ], [ %99, %59 ]
  %67 = phi i32 [ %48, %41 ], [ %100, %59 ]
  %68 = add nsw i64 %47, 1
  %69 = getelementptr i32, ptr %62, i64 %7
  %70 = getelementptr i8, ptr %69, i64 4
  %71 = load i32, ptr %70, align 4, !tbaa !4
  %72 = sext i32 %71 to i64
  %73 = icmp slt i64 %68, %72
  br i1 %73, label %41, label %35, !llvm.loop !148

74:                                               ; preds = %97, %57
  %75 = phi ptr [ %43, %57 ], [ %98, %97 ]
  %76 = phi ptr [ %44, %57 ], [ %99, %97 ]
  %77 = phi i64 [ %58, %57 ], [ %101, %97 ]
  %78 = phi i32 [ %48, %57 ], [ %100, %97 ]
  %79 = load ptr, ptr %28, align 8, !tbaa !89
  %80 = load ptr, ptr %29, align 8, !tbaa !76
  %81 = getelementptr inbounds i32, ptr %80, i64 %77
  %82 = load i32, ptr %81, align 4, !tbaa !4
  %83 = sext i32 %82 to i64
  %84 = getelementptr inbounds i32, ptr %79, i64 %83
  %85 = load i32, ptr %84, align 4, !tbaa !4
  %86 = icmp eq i32 %85, 0
  br i1 %86, label %97, label %87

87:                                               ; preds = %74
  %88 = load ptr, ptr %30, align 8, !tbaa !142
  %89 = getelementptr inbounds i32, ptr %88, i64 %83
  %90 = load i32, ptr %89, align 4, !tbaa !4
  %91 = icmp eq i32 %90, 1
  br i1 %91, label %92, label %97

92:                                               ; preds = %87
  %93 = tail call fastcc i32 @worth(ptr noundef %0, i32 noundef %82, i32 noundef %31) #7
  %94 = add nsw i32 %93, %78
  %95 = load ptr, ptr %26, align 8, !tbaa !77
  %96 = load ptr, ptr %27, align 8, !tbaa !23
  br label %97

97:                                               ; preds = %92, %87, %74
  %98 = phi ptr [ %96, %92 ], [ %75, %87 ], [ %75, %74 ]
  %99 = phi ptr [ %95, %92 ], [ %76, %87 ], [ %76, %74 ]
  %100 = phi i32 [ %94, %92 ], [ %78, %87 ], [ %78, %74 ]
  %101 = add nsw i64 %77, 1
  %102 = getelementptr inbounds i32, ptr %98, i64 %47
  %103 = load i32, ptr %102, align 4, !tbaa !4
  %104 = sext i32 %103 to i64
  %105 = getelementptr i32, ptr %99, i64 %104
  %106 = getelementptr i8, ptr %105, i64 4
  %107 = load i32, ptr %106, align 4, !tbaa !4
  %108 = sext i32 %107 to i64
  %109 = icmp slt i64 %101, %108
  br i1 %109, label %74, label %59, !llvm.loop !149

110:                                              ; preds = %37, %11, %3
  %111 = phi i32 [ %39, %37 ], [ %9, %3 ], [ %15, %11 ]
  ret i32 %111
}

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.smax.i32(i32, i32) #5

attributes #0 = { nofree norecurse nosync nounwind optsize memory(read, argmem: readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable "min-legal-vector-width"="0" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }
attributes #1 = { nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #2 = { nofree nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable "min-legal-vector-width"="0" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }
attributes #3 = { nocallback nofree nounwind willreturn memory(argmem: write) }
attributes #4 = { nofree norecurse nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable "min-legal-vector-width"="0" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }
attributes #5 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #6 = { nounwind }
attributes #7 = { optsize }

!llvm.module.flags = !{!0, !1, !2, !3}
!llvm.errno.tbaa = !{!4}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 8, !"PIC Level", i32 2}
!2 = !{i32 7, !"PIE Level", i32 2}
!3 = !{i32 7, !"uwtable", i32 2}
!4 = !{!5, !5, i64 0}
!5 = !{!"int", !6, i64 0}
!6 = !{!"omnipotent char", !7, i64 0}
!7 = !{!"Simple C/C++ TBAA"}
!8 = !{!9, !10, i64 8}
!9 = !{!"", !10, i64 0, !10, i64 8, !10, i64 16, !10, i64 24, !10, i64 32, !10, i64 40, !10, i64 48, !11, i64 56, !11, i64 64, !11, i64 72, !11, i64 80, !11, i64 88, !11, i64 96, !11, i64 104, !11, i64 112, !11, i64 120, !11, i64 128, !11, i64 136, !11, i64 144, !11, i64 152, !11, i64 160, !11, i64 168, !11, i64 176, !11, i64 184, !11, i64 192, !11, i64 200, !11, i64 208, !11, i64 216, !11, i64 224, !11, i64 232, !11, i64 240, !11, i64 248, !11, i64 256, !11, i64 264, !13, i64 272, !13, i64 280, !11, i64 288}
!10 = !{!"long", !6, i64 0}
!11 = !{!"p1 int", !12, i64 0}
!12 = !{!"any pointer", !6, i64 0}
!13 = !{!"p1 float", !12, i64 0}
!14 = !{!9, !10, i64 0}
!15 = !{!9, !11, i64 88}
!16 = !{!17, !17, i64 0}
!17 = !{!"float", !6, i64 0}
!18 = distinct !{!18, !19, !20}
!19 = !{!"llvm.loop.mustprogress"}
!20 = !{!"llvm.loop.unroll.disable"}
!21 = !{!9, !11, i64 104}
!22 = !{!9, !11, i64 168}
!23 = !{!9, !11, i64 112}
!24 = !{!9, !11, i64 176}
!25 = distinct !{!25, !19, !20}
!26 = distinct !{!26, !19, !20}
!27 = distinct !{!27, !19, !20}
!28 = distinct !{!28, !19, !20}
!29 = !{!9, !11, i64 56}
!30 = !{!9, !11, i64 80}
!31 = distinct !{!31, !19, !20}
!32 = !{!9, !11, i64 184}
!33 = distinct !{!33, !19, !20}
!34 = !{!9, !11, i64 64}
!35 = !{!9, !11, i64 72}
!36 = distinct !{!36, !19, !20}
!37 = !{!9, !10, i64 16}
!38 = !{!9, !10, i64 40}
!39 = !{!9, !10, i64 48}
!40 = !{!9, !11, i64 288}
!41 = !{!42, !12, i64 0}
!42 = !{!"", !12, i64 0, !11, i64 8, !11, i64 16, !11, i64 24, !11, i64 32, !11, i64 40, !11, i64 48, !11, i64 56, !11, i64 64, !11, i64 72, !11, i64 80, !11, i64 88, !11, i64 96, !11, i64 104, !11, i64 112, !11, i64 120, !11, i64 128, !11, i64 136, !11, i64 144, !11, i64 152, !11, i64 160, !11, i64 168, !11, i64 176, !11, i64 184, !11, i64 192, !5, i64 200, !10, i64 208, !17, i64 216, !17, i64 220, !13, i64 224}
!43 = !{!42, !11, i64 64}
!44 = !{!45, !45, i64 0}
!45 = !{!"p2 int", !46, i64 0}
!46 = !{!"any p2 pointer", !12, i64 0}
!47 = !{!11, !11, i64 0}
!48 = distinct !{!48, !19, !20}
!49 = !{!10, !10, i64 0}
!50 = distinct !{!50, !19, !20}
!51 = !{!42, !11, i64 72}
!52 = distinct !{!52, !19, !20}
!53 = !{!54, !10, i64 0}
!54 = !{!"", !10, i64 0, !10, i64 8, !10, i64 16, !6, i64 24, !17, i64 40}
!55 = distinct !{!55, !19, !20}
!56 = !{!42, !10, i64 208}
!57 = !{!54, !10, i64 8}
!58 = !{!42, !11, i64 104}
!59 = !{!42, !17, i64 216}
!60 = !{!54, !17, i64 40}
!61 = !{!42, !17, i64 220}
!62 = !{!9, !13, i64 280}
!63 = !{!54, !10, i64 16}
!64 = !{!42, !13, i64 224}
!65 = !{!42, !5, i64 200}
!66 = !{!9, !10, i64 32}
!67 = !{!9, !11, i64 200}
!68 = !{!42, !11, i64 32}
!69 = !{!9, !11, i64 192}
!70 = !{!9, !10, i64 24}
!71 = !{!42, !11, i64 56}
!72 = distinct !{!72, !19, !20}
!73 = !{!9, !11, i64 216}
!74 = !{!9, !11, i64 208}
!75 = distinct !{!75, !19, !20}
!76 = !{!9, !11, i64 128}
!77 = !{!9, !11, i64 120}
!78 = !{!9, !11, i64 224}
!79 = !{!9, !11, i64 232}
!80 = distinct !{!80, !19, !20}
!81 = distinct !{!81, !19, !20}
!82 = !{!9, !13, i64 272}
!83 = distinct !{!83, !19, !20}
!84 = !{!9, !11, i64 136}
!85 = !{!9, !11, i64 144}
!86 = distinct !{!86, !19, !20}
!87 = distinct !{!87, !19, !20}
!88 = distinct !{!88, !19, !20}
!89 = !{!42, !11, i64 8}
!90 = distinct !{!90, !19, !20}
!91 = !{!42, !11, i64 40}
!92 = distinct !{!92, !19, !20}
!93 = distinct !{!93, !19, !20}
!94 = !{!9, !11, i64 152}
!95 = !{!9, !11, i64 160}
!96 = distinct !{!96, !19, !20}
!97 = distinct !{!97, !19, !20}
!98 = !{!42, !11, i64 48}
!99 = distinct !{!99, !19, !20}
!100 = distinct !{!100, !19, !20}
!101 = distinct !{!101, !19, !20}
!102 = !{!42, !11, i64 128}
!103 = !{!42, !11, i64 136}
!104 = !{!42, !11, i64 160}
!105 = distinct !{!105, !19, !20}
!106 = !{!9, !11, i64 256}
!107 = distinct !{!107, !19, !20}
!108 = distinct !{!108, !19, !20}
!109 = !{!9, !11, i64 240}
!110 = !{!9, !11, i64 248}
!111 = distinct !{!111, !19, !20}
!112 = distinct !{!112, !19, !20}
!113 = distinct !{!113, !19, !20}
!114 = !{!9, !11, i64 264}
!115 = distinct !{!115, !19, !20}
!116 = distinct !{!116, !19, !20}
!117 = distinct !{!117, !19, !20}
!118 = !{!42, !11, i64 80}
!119 = distinct !{!119, !19, !20}
!120 = distinct !{!120, !19, !20}
!121 = distinct !{!121, !19, !20}
!122 = !{!42, !11, i64 144}
!123 = distinct !{!123, !19, !20}
!124 = distinct !{!124, !19, !20}
!125 = !{!9, !11, i64 96}
!126 = distinct !{!126, !19, !20}
!127 = distinct !{!127, !19, !20}
!128 = distinct !{!128, !19, !20}
!129 = distinct !{!129, !19, !20}
!130 = distinct !{!130, !19, !20}
!131 = distinct !{!131, !19, !20}
!132 = distinct !{!132, !19, !20}
!133 = !{!42, !11, i64 88}
!134 = distinct !{!134, !19, !20}
!135 = distinct !{!135, !19, !20}
!136 = !{!42, !11, i64 16}
!137 = distinct !{!137, !19, !20}
!138 = !{!42, !11, i64 24}
!139 = distinct !{!139, !19, !20}
!140 = distinct !{!140, !19, !20}
!141 = distinct !{!141, !19, !20}
!142 = !{!42, !11, i64 112}
!143 = !{!42, !11, i64 120}
!144 = distinct !{!144, !19, !20}
!145 = distinct !{!145, !19, !20}
!146 = distinct !{!146, !19, !20}
!147 = distinct !{!147, !19, !20}
!148 = distinct !{!148, !19, !20}
!149 = distinct !{!149, !19, !20}
