; ModuleID = '<string>'
source_filename = "<string>"

%struct.Search = type { ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i32, i64, float, float, ptr }
%struct.Seen = type { i64, i64, i64, i64 }

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
  %8 = alloca [1024 x %struct.Seen], align 16
  %9 = load i64, ptr %0, align 8, !tbaa !14
  %10 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %11 = load i64, ptr %10, align 8, !tbaa !37
  %12 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %13 = load i64, ptr %12, align 8, !tbaa !8
  %14 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %15 = load i64, ptr %14, align 8, !tbaa !38
  %16 = getelementptr inbounds nuw i8, ptr %0, i64 48
  %17 = load i64, ptr %16, align 8, !tbaa !39
  %18 = getelementptr inbounds nuw i8, ptr %0, i64 288
  %19 = load ptr, ptr %18, align 8, !tbaa !40
  call void @llvm.lifetime.start.p0(ptr nonnull %5) #6
  %20 = getelementptr inbounds nuw i8, ptr %5, i64 8
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(224) %20, i8 0, i64 224, i1 false)
  store ptr %0, ptr %5, align 8, !tbaa !41
  %21 = getelementptr inbounds nuw i8, ptr %5, i64 64
  store ptr %2, ptr %21, align 8, !tbaa !43
  call void @llvm.lifetime.start.p0(ptr nonnull %6) #6
  %22 = getelementptr inbounds nuw i8, ptr %5, i64 8
  store ptr %22, ptr %6, align 16, !tbaa !44
  %23 = getelementptr inbounds nuw i8, ptr %6, i64 8
  %24 = getelementptr inbounds nuw i8, ptr %5, i64 16
  store ptr %24, ptr %23, align 8, !tbaa !44
  %25 = getelementptr inbounds nuw i8, ptr %6, i64 16
  %26 = getelementptr inbounds nuw i8, ptr %5, i64 24
  store ptr %26, ptr %25, align 16, !tbaa !44
  %27 = getelementptr inbounds nuw i8, ptr %6, i64 24
  %28 = getelementptr inbounds nuw i8, ptr %5, i64 32
  store ptr %28, ptr %27, align 8, !tbaa !44
  %29 = getelementptr inbounds nuw i8, ptr %6, i64 32
  %30 = getelementptr inbounds nuw i8, ptr %5, i64 40
  store ptr %30, ptr %29, align 16, !tbaa !44
  %31 = getelementptr inbounds nuw i8, ptr %6, i64 40
  %32 = getelementptr inbounds nuw i8, ptr %5, i64 48
  store ptr %32, ptr %31, align 8, !tbaa !44
  %33 = getelementptr inbounds nuw i8, ptr %6, i64 48
  %34 = getelementptr inbounds nuw i8, ptr %5, i64 56
  store ptr %34, ptr %33, align 16, !tbaa !44
  %35 = getelementptr inbounds nuw i8, ptr %6, i64 56
  %36 = getelementptr inbounds nuw i8, ptr %5, i64 72
  store ptr %36, ptr %35, align 8, !tbaa !44
  %37 = getelementptr inbounds nuw i8, ptr %6, i64 64
  %38 = getelementptr inbounds nuw i8, ptr %5, i64 80
  store ptr %38, ptr %37, align 16, !tbaa !44
  %39 = getelementptr inbounds nuw i8, ptr %6, i64 72
  %40 = getelementptr inbounds nuw i8, ptr %5, i64 88
  store ptr %40, ptr %39, align 8, !tbaa !44
  %41 = getelementptr inbounds nuw i8, ptr %6, i64 80
  %42 = getelementptr inbounds nuw i8, ptr %5, i64 96
  store ptr %42, ptr %41, align 16, !tbaa !44
  %43 = getelementptr inbounds nuw i8, ptr %6, i64 88
  %44 = getelementptr inbounds nuw i8, ptr %5, i64 104
  store ptr %44, ptr %43, align 8, !tbaa !44
  %45 = getelementptr inbounds nuw i8, ptr %6, i64 96
  %46 = getelementptr inbounds nuw i8, ptr %5, i64 112
  store ptr %46, ptr %45, align 16, !tbaa !44
  %47 = getelementptr inbounds nuw i8, ptr %6, i64 104
  %48 = getelementptr inbounds nuw i8, ptr %5, i64 120
  store ptr %48, ptr %47, align 8, !tbaa !44
  %49 = getelementptr inbounds nuw i8, ptr %6, i64 112
  %50 = getelementptr inbounds nuw i8, ptr %5, i64 128
  store ptr %50, ptr %49, align 16, !tbaa !44
  %51 = getelementptr inbounds nuw i8, ptr %6, i64 120
  %52 = getelementptr inbounds nuw i8, ptr %5, i64 136
  store ptr %52, ptr %51, align 8, !tbaa !44
  %53 = getelementptr inbounds nuw i8, ptr %6, i64 128
  %54 = getelementptr inbounds nuw i8, ptr %5, i64 144
  store ptr %54, ptr %53, align 16, !tbaa !44
  %55 = getelementptr inbounds nuw i8, ptr %6, i64 136
  %56 = getelementptr inbounds nuw i8, ptr %5, i64 152
  store ptr %56, ptr %55, align 8, !tbaa !44
  %57 = getelementptr inbounds nuw i8, ptr %6, i64 144
  %58 = getelementptr inbounds nuw i8, ptr %5, i64 160
  store ptr %58, ptr %57, align 16, !tbaa !44
  br label %67

59:                                               ; preds = %67
  call void @llvm.lifetime.start.p0(ptr nonnull %7) #6
  %60 = getelementptr inbounds nuw i8, ptr %5, i64 168
  store ptr %60, ptr %7, align 16, !tbaa !44
  %61 = getelementptr inbounds nuw i8, ptr %7, i64 8
  %62 = getelementptr inbounds nuw i8, ptr %5, i64 176
  store ptr %62, ptr %61, align 8, !tbaa !44
  %63 = getelementptr inbounds nuw i8, ptr %7, i64 16
  %64 = getelementptr inbounds nuw i8, ptr %5, i64 184
  store ptr %64, ptr %63, align 16, !tbaa !44
  %65 = getelementptr inbounds nuw i8, ptr %7, i64 24
  %66 = getelementptr inbounds nuw i8, ptr %5, i64 192
  store ptr %66, ptr %65, align 8, !tbaa !44
  br label %100

67:                                               ; preds = %67, %4
  %68 = phi ptr [ %19, %4 ], [ %77, %67 ]
  %69 = phi i64 [ 0, %4 ], [ %72, %67 ]
  %70 = getelementptr inbounds nuw ptr, ptr %6, i64 %69
  %71 = load ptr, ptr %70, align 8, !tbaa !44
  store ptr %68, ptr %71, align 8, !tbaa !47
  %72 = add nuw nsw i64 %69, 1
  %73 = getelementptr i32, ptr %68, i64 %9
  %74 = getelementptr i32, ptr %73, i64 %11
  %75 = getelementptr i32, ptr %74, i64 %13
  %76 = getelementptr i32, ptr %75, i64 %15
  %77 = getelementptr i8, ptr %76, i64 4
  %78 = icmp eq i64 %72, 19
  br i1 %78, label %59, label %67, !llvm.loop !48

79:                                               ; preds = %100
  %80 = load i64, ptr %3, align 8, !tbaa !49
  %81 = icmp sgt i64 %80, 0
  br i1 %81, label %82, label %97

82:                                               ; preds = %79
  %83 = getelementptr inbounds nuw i8, ptr %0, i64 56
  %84 = load ptr, ptr %83, align 8, !tbaa !29
  br label %85

85:                                               ; preds = %85, %82
  %86 = phi i64 [ 0, %82 ], [ %95, %85 ]
  %87 = phi i64 [ 0, %82 ], [ %94, %85 ]
  %88 = getelementptr inbounds nuw i32, ptr %2, i64 %86
  %89 = load i32, ptr %88, align 4, !tbaa !4
  %90 = sext i32 %89 to i64
  %91 = getelementptr inbounds i32, ptr %84, i64 %90
  %92 = load i32, ptr %91, align 4, !tbaa !4
  %93 = sext i32 %92 to i64
  %94 = add nsw i64 %87, %93
  %95 = add nuw nsw i64 %86, 1
  %96 = icmp eq i64 %95, %80
  br i1 %96, label %98, label %85, !llvm.loop !50

97:                                               ; preds = %79
  call void @llvm.lifetime.start.p0(ptr nonnull %8) #6
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 16 dereferenceable(32768) %8, i8 0, i64 32768, i1 false)
  br label %108

98:                                               ; preds = %85
  call void @llvm.lifetime.start.p0(ptr nonnull %8) #6
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 16 dereferenceable(32768) %8, i8 0, i64 32768, i1 false)
  %99 = load ptr, ptr %36, align 8, !tbaa !51
  br label %128

100:                                              ; preds = %100, %59
  %101 = phi ptr [ %77, %59 ], [ %106, %100 ]
  %102 = phi i64 [ 0, %59 ], [ %105, %100 ]
  %103 = getelementptr inbounds nuw ptr, ptr %7, i64 %102
  %104 = load ptr, ptr %103, align 8, !tbaa !44
  store ptr %101, ptr %104, align 8, !tbaa !47
  %105 = add nuw nsw i64 %102, 1
  %106 = getelementptr inbounds i32, ptr %101, i64 %17
  %107 = icmp eq i64 %105, 4
  br i1 %107, label %79, label %100, !llvm.loop !52

108:                                              ; preds = %128, %97
  %109 = phi i64 [ 0, %97 ], [ %94, %128 ]
  %110 = getelementptr inbounds nuw i8, ptr %5, i64 208
  %111 = load i64, ptr %1, align 8, !tbaa !53
  %112 = icmp sgt i64 %111, 0
  br i1 %112, label %113, label %145

113:                                              ; preds = %108
  %114 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %115 = icmp sgt i64 %9, 0
  %116 = getelementptr inbounds nuw i8, ptr %1, i64 24
  %117 = getelementptr inbounds nuw i8, ptr %5, i64 216
  %118 = getelementptr inbounds nuw i8, ptr %1, i64 40
  %119 = getelementptr inbounds nuw i8, ptr %5, i64 220
  %120 = getelementptr inbounds nuw i8, ptr %0, i64 280
  %121 = getelementptr inbounds nuw i8, ptr %1, i64 16
  %122 = getelementptr inbounds nuw i8, ptr %5, i64 224
  %123 = getelementptr inbounds nuw i8, ptr %5, i64 200
  %124 = getelementptr inbounds nuw i8, ptr %8, i64 32
  %125 = getelementptr inbounds nuw i8, ptr %0, i64 56
  %126 = shl nuw i64 %9, 2
  %127 = getelementptr inbounds nuw i8, ptr %8, i64 32
  br label %136

128:                                              ; preds = %128, %98
  %129 = phi i64 [ 0, %98 ], [ %134, %128 ]
  %130 = getelementptr inbounds nuw i32, ptr %2, i64 %129
  %131 = load i32, ptr %130, align 4, !tbaa !4
  %132 = sext i32 %131 to i64
  %133 = getelementptr inbounds i32, ptr %99, i64 %132
  store i32 1, ptr %133, align 4, !tbaa !4
  %134 = add nuw nsw i64 %129, 1
  %135 = icmp eq i64 %134, %80
  br i1 %135, label %108, label %128, !llvm.loop !55

136:                                              ; preds = %1297, %113
  %137 = phi i64 [ %109, %113 ], [ %1298, %1297 ]
  %138 = phi i64 [ 0, %113 ], [ %1299, %1297 ]
  %139 = load i64, ptr %110, align 8, !tbaa !56
  %140 = load i64, ptr %114, align 8, !tbaa !57
  %141 = icmp slt i64 %139, %140
  br i1 %141, label %142, label %145

142:                                              ; preds = %136
  br i1 %115, label %143, label %147

143:                                              ; preds = %142
  %144 = load ptr, ptr %44, align 8, !tbaa !58
  call void @llvm.memset.p0.i64(ptr align 4 %144, i8 0, i64 %126, i1 false), !tbaa !4
  br label %147

145:                                              ; preds = %1297, %136, %108
  %146 = phi i64 [ %109, %108 ], [ %1298, %1297 ], [ %137, %136 ]
  call void @llvm.lifetime.end.p0(ptr nonnull %8) #6
  call void @llvm.lifetime.end.p0(ptr nonnull %7) #6
  call void @llvm.lifetime.end.p0(ptr nonnull %6) #6
  call void @llvm.lifetime.end.p0(ptr nonnull %5) #6
  ret i64 %146

147:                                              ; preds = %143, %142
  %148 = icmp eq i64 %138, 0
  br i1 %148, label %149, label %150

149:                                              ; preds = %147
  store float 0.000000e+00, ptr %117, align 8, !tbaa !59
  br label %158

150:                                              ; preds = %147
  %151 = and i64 %138, 3
  %152 = getelementptr inbounds nuw float, ptr %116, i64 %151
  %153 = load float, ptr %152, align 4, !tbaa !16
  store float %153, ptr %117, align 8, !tbaa !59
  %154 = and i64 %138, 1
  %155 = icmp eq i64 %154, 0
  br i1 %155, label %158, label %156

156:                                              ; preds = %150
  %157 = load float, ptr %118, align 8, !tbaa !60
  br label %158

158:                                              ; preds = %156, %150, %149
  %159 = phi float [ %157, %156 ], [ 0.000000e+00, %150 ], [ 0.000000e+00, %149 ]
  store float %159, ptr %119, align 4, !tbaa !61
  %160 = load ptr, ptr %120, align 8, !tbaa !62
  %161 = mul nuw nsw i64 %138, 40503
  %162 = load i64, ptr %121, align 8, !tbaa !63
  %163 = srem i64 %161, %162
  %164 = getelementptr inbounds nuw float, ptr %160, i64 %163
  store ptr %164, ptr %122, align 8, !tbaa !64
  %165 = load i64, ptr %124, align 16
  %166 = icmp eq i64 %165, 1
  %167 = shl nsw i64 %137, 3
  %168 = icmp sgt i64 %137, 0
  %169 = load ptr, ptr %5, align 8, !tbaa !41
  %170 = icmp eq i64 %165, 1
  %171 = icmp slt i64 %137, 0
  %172 = icmp sgt i64 %137, 0
  br label %176

173:                                              ; preds = %1244
  %174 = add nuw nsw i32 %178, 1
  %175 = icmp eq i32 %174, 6
  br i1 %175, label %1297, label %176, !llvm.loop !65

176:                                              ; preds = %173, %158
  %177 = phi ptr [ %169, %158 ], [ %857, %173 ]
  %178 = phi i32 [ 0, %158 ], [ %174, %173 ]
  %179 = load i32, ptr %123, align 8, !tbaa !66
  %180 = add nsw i32 %179, 1
  store i32 %180, ptr %123, align 8, !tbaa !66
  %181 = getelementptr inbounds nuw i8, ptr %177, i64 32
  %182 = load i64, ptr %181, align 8, !tbaa !67
  %183 = icmp sgt i64 %182, 0
  br i1 %183, label %184, label %192

184:                                              ; preds = %176
  %185 = getelementptr inbounds nuw i8, ptr %177, i64 200
  %186 = load ptr, ptr %185, align 8, !tbaa !68
  %187 = load ptr, ptr %28, align 8, !tbaa !69
  %188 = getelementptr inbounds nuw i8, ptr %177, i64 192
  %189 = load ptr, ptr %188, align 8, !tbaa !70
  %190 = load ptr, ptr %40, align 8
  %191 = load ptr, ptr %42, align 8
  br label %219

192:                                              ; preds = %236, %176
  %193 = phi i64 [ 0, %176 ], [ %237, %236 ]
  %194 = phi i64 [ 0, %176 ], [ %238, %236 ]
  %195 = getelementptr inbounds nuw i8, ptr %177, i64 24
  %196 = load i64, ptr %195, align 8, !tbaa !71
  %197 = icmp sgt i64 %196, 0
  %198 = icmp sgt i64 %194, 0
  %199 = select i1 %197, i1 true, i1 %198
  %200 = icmp sgt i64 %193, 0
  %201 = select i1 %199, i1 true, i1 %200
  br i1 %201, label %202, label %501

202:                                              ; preds = %192
  %203 = getelementptr inbounds nuw i8, ptr %177, i64 128
  %204 = getelementptr inbounds nuw i8, ptr %177, i64 120
  %205 = getelementptr inbounds nuw i8, ptr %177, i64 216
  %206 = getelementptr inbounds nuw i8, ptr %177, i64 208
  %207 = getelementptr inbounds nuw i8, ptr %177, i64 224
  %208 = getelementptr inbounds nuw i8, ptr %177, i64 232
  %209 = getelementptr inbounds nuw i8, ptr %177, i64 272
  %210 = getelementptr inbounds nuw i8, ptr %177, i64 136
  %211 = getelementptr inbounds nuw i8, ptr %177, i64 144
  %212 = getelementptr inbounds nuw i8, ptr %177, i64 104
  %213 = getelementptr inbounds nuw i8, ptr %177, i64 112
  %214 = getelementptr inbounds nuw i8, ptr %177, i64 192
  %215 = load i64, ptr %110, align 8
  %216 = load ptr, ptr %26, align 8
  %217 = load ptr, ptr %56, align 8
  %218 = load ptr, ptr %34, align 8
  br label %241

219:                                              ; preds = %236, %184
  %220 = phi i64 [ 0, %184 ], [ %238, %236 ]
  %221 = phi i64 [ 0, %184 ], [ %237, %236 ]
  %222 = phi i64 [ 0, %184 ], [ %239, %236 ]
  %223 = getelementptr inbounds nuw i32, ptr %186, i64 %222
  %224 = load i32, ptr %223, align 4, !tbaa !4
  %225 = sext i32 %224 to i64
  %226 = getelementptr inbounds i32, ptr %187, i64 %225
  store i32 %180, ptr %226, align 4, !tbaa !4
  %227 = getelementptr inbounds i32, ptr %189, i64 %225
  %228 = load i32, ptr %227, align 4, !tbaa !4
  %229 = icmp eq i32 %228, 0
  br i1 %229, label %233, label %230

230:                                              ; preds = %219
  %231 = add nsw i64 %220, 1
  %232 = getelementptr inbounds i32, ptr %190, i64 %220
  store i32 %224, ptr %232, align 4, !tbaa !4
  br label %236

233:                                              ; preds = %219
  %234 = add nsw i64 %221, 1
  %235 = getelementptr inbounds i32, ptr %191, i64 %221
  store i32 %224, ptr %235, align 4, !tbaa !4
  br label %236

236:                                              ; preds = %233, %230
  %237 = phi i64 [ %221, %230 ], [ %234, %233 ]
  %238 = phi i64 [ %231, %230 ], [ %220, %233 ]
  %239 = add nuw nsw i64 %222, 1
  %240 = icmp eq i64 %239, %182
  br i1 %240, label %192, label %219, !llvm.loop !72

241:                                              ; preds = %465, %202
  %242 = phi i64 [ %215, %202 ], [ %466, %465 ]
  %243 = phi i1 [ %198, %202 ], [ %474, %465 ]
  %244 = phi i1 [ %197, %202 ], [ %473, %465 ]
  %245 = phi i64 [ 0, %202 ], [ %472, %465 ]
  %246 = phi i64 [ %194, %202 ], [ %471, %465 ]
  %247 = phi i64 [ 0, %202 ], [ %470, %465 ]
  %248 = phi i64 [ 0, %202 ], [ %469, %465 ]
  %249 = phi i64 [ %193, %202 ], [ %468, %465 ]
  %250 = phi i64 [ 0, %202 ], [ %467, %465 ]
  br i1 %244, label %251, label %265

251:                                              ; preds = %241
  %252 = load ptr, ptr %205, align 8, !tbaa !73
  %253 = load ptr, ptr %206, align 8, !tbaa !74
  %254 = getelementptr inbounds i32, ptr %253, i64 %248
  %255 = load i32, ptr %254, align 4, !tbaa !4
  %256 = sext i32 %255 to i64
  %257 = getelementptr inbounds i32, ptr %252, i64 %256
  %258 = add nsw i64 %248, 1
  %259 = getelementptr inbounds i32, ptr %253, i64 %258
  %260 = load i32, ptr %259, align 4, !tbaa !4
  %261 = sub nsw i32 %260, %255
  %262 = getelementptr inbounds i32, ptr %217, i64 %248
  %263 = load i32, ptr %262, align 4, !tbaa !4
  %264 = icmp eq i32 %263, %180
  br i1 %264, label %465, label %291, !llvm.loop !75

265:                                              ; preds = %241
  %266 = load ptr, ptr %40, align 8
  %267 = getelementptr inbounds i32, ptr %266, i64 %247
  %268 = load ptr, ptr %42, align 8
  %269 = getelementptr inbounds i32, ptr %268, i64 %250
  %270 = xor i1 %243, true
  %271 = zext i1 %270 to i64
  %272 = add nsw i64 %250, %271
  %273 = zext i1 %243 to i64
  %274 = add nsw i64 %247, %273
  %275 = select i1 %243, ptr %267, ptr %269
  %276 = load i32, ptr %275, align 4, !tbaa !4
  %277 = sext i32 %276 to i64
  %278 = getelementptr inbounds i32, ptr %216, i64 %277
  %279 = load i32, ptr %278, align 4, !tbaa !4
  %280 = icmp eq i32 %279, %180
  br i1 %280, label %465, label %281, !llvm.loop !75

281:                                              ; preds = %265
  %282 = load ptr, ptr %203, align 8, !tbaa !76
  %283 = load ptr, ptr %204, align 8, !tbaa !77
  %284 = getelementptr inbounds i32, ptr %283, i64 %277
  %285 = load i32, ptr %284, align 4, !tbaa !4
  %286 = sext i32 %285 to i64
  %287 = getelementptr inbounds i32, ptr %282, i64 %286
  %288 = getelementptr i8, ptr %284, i64 4
  %289 = load i32, ptr %288, align 4, !tbaa !4
  %290 = sub nsw i32 %289, %285
  br label %291

291:                                              ; preds = %281, %251
  %292 = phi i64 [ %250, %251 ], [ %272, %281 ]
  %293 = phi i64 [ %258, %251 ], [ %248, %281 ]
  %294 = phi ptr [ %257, %251 ], [ %287, %281 ]
  %295 = phi i32 [ %261, %251 ], [ %290, %281 ]
  %296 = phi i64 [ %247, %251 ], [ %274, %281 ]
  %297 = icmp sgt i32 %295, 0
  %298 = zext nneg i32 %295 to i64
  %299 = load ptr, ptr %44, align 8
  %300 = load ptr, ptr %56, align 8
  %301 = load ptr, ptr %122, align 8
  %302 = load ptr, ptr %36, align 8
  %303 = load float, ptr %119, align 4
  %304 = load float, ptr %117, align 8
  br label %305

305:                                              ; preds = %326, %291
  %306 = phi i1 [ true, %291 ], [ false, %326 ]
  %307 = phi float [ 0.000000e+00, %291 ], [ %328, %326 ]
  %308 = phi i32 [ -1, %291 ], [ %327, %326 ]
  br i1 %297, label %331, label %326

309:                                              ; preds = %326
  %310 = sext i32 %295 to i64
  %311 = add nsw i64 %242, %310
  store i64 %311, ptr %110, align 8, !tbaa !56
  %312 = add nsw i64 %245, 1
  %313 = getelementptr inbounds i32, ptr %218, i64 %245
  store i32 %327, ptr %313, align 4, !tbaa !4
  %314 = load ptr, ptr %207, align 8, !tbaa !78
  %315 = sext i32 %327 to i64
  %316 = getelementptr inbounds i32, ptr %314, i64 %315
  %317 = load i32, ptr %316, align 4, !tbaa !4
  %318 = add nsw i32 %327, 1
  %319 = sext i32 %318 to i64
  %320 = getelementptr inbounds i32, ptr %314, i64 %319
  %321 = load i32, ptr %320, align 4, !tbaa !4
  %322 = icmp slt i32 %317, %321
  br i1 %322, label %323, label %390

323:                                              ; preds = %309
  %324 = load ptr, ptr %208, align 8, !tbaa !79
  %325 = sext i32 %317 to i64
  br label %400

326:                                              ; preds = %385, %305
  %327 = phi i32 [ %308, %305 ], [ %386, %385 ]
  %328 = phi float [ %307, %305 ], [ %387, %385 ]
  %329 = icmp slt i32 %327, 0
  %330 = select i1 %306, i1 %329, i1 false
  br i1 %330, label %305, label %309, !llvm.loop !80

331:                                              ; preds = %385, %305
  %332 = phi i64 [ %388, %385 ], [ 0, %305 ]
  %333 = phi float [ %387, %385 ], [ %307, %305 ]
  %334 = phi i32 [ %386, %385 ], [ %308, %305 ]
  %335 = getelementptr inbounds nuw i32, ptr %294, i64 %332
  %336 = load i32, ptr %335, align 4, !tbaa !4
  %337 = sext i32 %336 to i64
  br i1 %306, label %338, label %342

338:                                              ; preds = %331
  %339 = getelementptr inbounds i32, ptr %299, i64 %337
  %340 = load i32, ptr %339, align 4, !tbaa !4
  %341 = icmp eq i32 %340, 0
  br i1 %341, label %342, label %385

342:                                              ; preds = %338, %331
  %343 = load ptr, ptr %207, align 8, !tbaa !78
  %344 = getelementptr inbounds i32, ptr %343, i64 %337
  %345 = load i32, ptr %344, align 4, !tbaa !4
  %346 = getelementptr i8, ptr %344, i64 4
  %347 = load i32, ptr %346, align 4, !tbaa !4
  %348 = icmp slt i32 %345, %347
  br i1 %348, label %349, label %367

349:                                              ; preds = %342
  %350 = load ptr, ptr %208, align 8, !tbaa !79
  %351 = sext i32 %345 to i64
  %352 = sext i32 %347 to i64
  br label %355

353:                                              ; preds = %355
  %354 = icmp eq i32 %364, 0
  br i1 %354, label %385, label %367

355:                                              ; preds = %355, %349
  %356 = phi i64 [ %351, %349 ], [ %365, %355 ]
  %357 = phi i32 [ 1, %349 ], [ %364, %355 ]
  %358 = getelementptr inbounds i32, ptr %350, i64 %356
  %359 = load i32, ptr %358, align 4, !tbaa !4
  %360 = sext i32 %359 to i64
  %361 = getelementptr inbounds i32, ptr %300, i64 %360
  %362 = load i32, ptr %361, align 4, !tbaa !4
  %363 = icmp eq i32 %362, %180
  %364 = select i1 %363, i32 0, i32 %357
  %365 = add nsw i64 %356, 1
  %366 = icmp eq i64 %365, %352
  br i1 %366, label %353, label %355, !llvm.loop !81

367:                                              ; preds = %353, %342
  %368 = load ptr, ptr %209, align 8, !tbaa !82
  %369 = getelementptr inbounds float, ptr %368, i64 %337
  %370 = load float, ptr %369, align 4, !tbaa !16
  %371 = getelementptr inbounds float, ptr %301, i64 %337
  %372 = load float, ptr %371, align 4, !tbaa !16
  %373 = fmul float %304, %372
  %374 = fadd float %370, %373
  %375 = getelementptr inbounds i32, ptr %302, i64 %337
  %376 = load i32, ptr %375, align 4, !tbaa !4
  %377 = icmp eq i32 %376, 0
  %378 = select i1 %377, float 0.000000e+00, float %303
  %379 = fadd float %374, %378
  %380 = icmp slt i32 %334, 0
  %381 = fcmp ogt float %379, %333
  %382 = select i1 %380, i1 true, i1 %381
  %383 = select i1 %382, i32 %336, i32 %334
  %384 = select i1 %382, float %379, float %333
  br label %385

385:                                              ; preds = %367, %353, %338
  %386 = phi i32 [ %334, %338 ], [ %383, %367 ], [ %334, %353 ]
  %387 = phi float [ %333, %338 ], [ %384, %367 ], [ %333, %353 ]
  %388 = add nuw nsw i64 %332, 1
  %389 = icmp eq i64 %388, %298
  br i1 %389, label %326, label %331, !llvm.loop !83

390:                                              ; preds = %400, %309
  %391 = load ptr, ptr %210, align 8, !tbaa !84
  %392 = getelementptr inbounds i32, ptr %391, i64 %315
  %393 = load i32, ptr %392, align 4, !tbaa !4
  %394 = getelementptr inbounds i32, ptr %391, i64 %319
  %395 = load i32, ptr %394, align 4, !tbaa !4
  %396 = icmp slt i32 %393, %395
  br i1 %396, label %397, label %410

397:                                              ; preds = %390
  %398 = load ptr, ptr %211, align 8, !tbaa !85
  %399 = sext i32 %393 to i64
  br label %423

400:                                              ; preds = %400, %323
  %401 = phi i64 [ %325, %323 ], [ %406, %400 ]
  %402 = getelementptr inbounds i32, ptr %324, i64 %401
  %403 = load i32, ptr %402, align 4, !tbaa !4
  %404 = sext i32 %403 to i64
  %405 = getelementptr inbounds i32, ptr %217, i64 %404
  store i32 %180, ptr %405, align 4, !tbaa !4
  %406 = add nsw i64 %401, 1
  %407 = load i32, ptr %320, align 4, !tbaa !4
  %408 = sext i32 %407 to i64
  %409 = icmp slt i64 %406, %408
  br i1 %409, label %400, label %390, !llvm.loop !86

410:                                              ; preds = %423, %390
  %411 = load ptr, ptr %212, align 8, !tbaa !21
  %412 = getelementptr inbounds i32, ptr %411, i64 %315
  %413 = load i32, ptr %412, align 4, !tbaa !4
  %414 = getelementptr inbounds i32, ptr %411, i64 %319
  %415 = load i32, ptr %414, align 4, !tbaa !4
  %416 = icmp slt i32 %413, %415
  br i1 %416, label %417, label %465

417:                                              ; preds = %410
  %418 = load ptr, ptr %213, align 8, !tbaa !23
  %419 = sext i32 %413 to i64
  %420 = load ptr, ptr %28, align 8
  %421 = load ptr, ptr %40, align 8
  %422 = load ptr, ptr %42, align 8
  br label %433

423:                                              ; preds = %423, %397
  %424 = phi i64 [ %399, %397 ], [ %429, %423 ]
  %425 = getelementptr inbounds i32, ptr %398, i64 %424
  %426 = load i32, ptr %425, align 4, !tbaa !4
  %427 = sext i32 %426 to i64
  %428 = getelementptr inbounds i32, ptr %216, i64 %427
  store i32 %180, ptr %428, align 4, !tbaa !4
  %429 = add nsw i64 %424, 1
  %430 = load i32, ptr %394, align 4, !tbaa !4
  %431 = sext i32 %430 to i64
  %432 = icmp slt i64 %429, %431
  br i1 %432, label %423, label %410, !llvm.loop !87

433:                                              ; preds = %458, %417
  %434 = phi i64 [ %419, %417 ], [ %461, %458 ]
  %435 = phi i64 [ %246, %417 ], [ %460, %458 ]
  %436 = phi i64 [ %249, %417 ], [ %459, %458 ]
  %437 = getelementptr inbounds i32, ptr %418, i64 %434
  %438 = load i32, ptr %437, align 4, !tbaa !4
  %439 = sext i32 %438 to i64
  %440 = getelementptr inbounds i32, ptr %216, i64 %439
  %441 = load i32, ptr %440, align 4, !tbaa !4
  %442 = icmp eq i32 %441, %180
  br i1 %442, label %458, label %443

443:                                              ; preds = %433
  %444 = getelementptr inbounds i32, ptr %420, i64 %439
  %445 = load i32, ptr %444, align 4, !tbaa !4
  %446 = icmp eq i32 %445, %180
  br i1 %446, label %458, label %447

447:                                              ; preds = %443
  store i32 %180, ptr %444, align 4, !tbaa !4
  %448 = load ptr, ptr %214, align 8, !tbaa !70
  %449 = getelementptr inbounds i32, ptr %448, i64 %439
  %450 = load i32, ptr %449, align 4, !tbaa !4
  %451 = icmp eq i32 %450, 0
  br i1 %451, label %455, label %452

452:                                              ; preds = %447
  %453 = add nsw i64 %435, 1
  %454 = getelementptr inbounds i32, ptr %421, i64 %435
  store i32 %438, ptr %454, align 4, !tbaa !4
  br label %458

455:                                              ; preds = %447
  %456 = add nsw i64 %436, 1
  %457 = getelementptr inbounds i32, ptr %422, i64 %436
  store i32 %438, ptr %457, align 4, !tbaa !4
  br label %458

458:                                              ; preds = %455, %452, %443, %433
  %459 = phi i64 [ %436, %433 ], [ %436, %443 ], [ %436, %452 ], [ %456, %455 ]
  %460 = phi i64 [ %435, %433 ], [ %435, %443 ], [ %453, %452 ], [ %435, %455 ]
  %461 = add nsw i64 %434, 1
  %462 = load i32, ptr %414, align 4, !tbaa !4
  %463 = sext i32 %462 to i64
  %464 = icmp slt i64 %461, %463
  br i1 %464, label %433, label %465, !llvm.loop !88

465:                                              ; preds = %458, %410, %265, %251
  %466 = phi i64 [ %242, %251 ], [ %242, %265 ], [ %311, %410 ], [ %311, %458 ]
  %467 = phi i64 [ %250, %251 ], [ %272, %265 ], [ %292, %410 ], [ %292, %458 ]
  %468 = phi i64 [ %249, %251 ], [ %249, %265 ], [ %249, %410 ], [ %459, %458 ]
  %469 = phi i64 [ %258, %251 ], [ %248, %265 ], [ %293, %410 ], [ %293, %458 ]
  %470 = phi i64 [ %247, %251 ], [ %274, %265 ], [ %296, %410 ], [ %296, %458 ]
  %471 = phi i64 [ %246, %251 ], [ %246, %265 ], [ %246, %410 ], [ %460, %458 ]
  %472 = phi i64 [ %245, %251 ], [ %245, %265 ], [ %312, %410 ], [ %312, %458 ]
  %473 = icmp slt i64 %469, %196
  %474 = icmp slt i64 %470, %471
  %475 = select i1 %473, i1 true, i1 %474
  %476 = icmp slt i64 %467, %468
  %477 = select i1 %475, i1 true, i1 %476
  br i1 %477, label %241, label %478

478:                                              ; preds = %465
  %479 = load i64, ptr %110, align 8, !tbaa !56
  %480 = load ptr, ptr %34, align 8, !tbaa !89
  %481 = icmp sgt i64 %472, 0
  br i1 %481, label %482, label %500

482:                                              ; preds = %482, %478
  %483 = phi i64 [ %492, %482 ], [ 0, %478 ]
  %484 = phi i64 [ %491, %482 ], [ 1, %478 ]
  %485 = getelementptr inbounds nuw i32, ptr %480, i64 %483
  %486 = load i32, ptr %485, align 4, !tbaa !4
  %487 = sext i32 %486 to i64
  %488 = xor i64 %484, %487
  %489 = mul i64 %488, -7046029254386353131
  %490 = lshr i64 %489, 29
  %491 = xor i64 %490, %489
  %492 = add nuw nsw i64 %483, 1
  %493 = icmp eq i64 %492, %472
  br i1 %493, label %494, label %482, !llvm.loop !90

494:                                              ; preds = %482
  %495 = or i64 %491, 1
  %496 = and i64 %495, 1023
  %497 = getelementptr inbounds nuw %struct.Seen, ptr %8, i64 %496
  %498 = load i64, ptr %497, align 16, !tbaa !91
  %499 = icmp eq i64 %498, %495
  br i1 %499, label %504, label %520

500:                                              ; preds = %478
  br i1 %170, label %504, label %530

501:                                              ; preds = %192
  %502 = load i64, ptr %110, align 8, !tbaa !56
  %503 = load ptr, ptr %34, align 8, !tbaa !89
  br i1 %166, label %504, label %530

504:                                              ; preds = %501, %500, %494
  %505 = phi ptr [ %124, %501 ], [ %497, %494 ], [ %127, %500 ]
  %506 = phi i64 [ %502, %501 ], [ %479, %494 ], [ %479, %500 ]
  %507 = getelementptr inbounds nuw i8, ptr %505, i64 16
  %508 = load i64, ptr %507, align 8, !tbaa !93
  %509 = getelementptr inbounds nuw i8, ptr %505, i64 8
  %510 = load i64, ptr %509, align 8, !tbaa !94
  %511 = mul nsw i64 %510, 5
  %512 = icmp sgt i64 %511, %167
  br i1 %512, label %516, label %513

513:                                              ; preds = %504
  %514 = getelementptr inbounds nuw i8, ptr %505, i64 24
  %515 = load i64, ptr %514, align 8, !tbaa !95
  br label %516

516:                                              ; preds = %513, %504
  %517 = phi i64 [ %515, %513 ], [ 0, %504 ]
  %518 = add i64 %508, %506
  %519 = add i64 %518, %517
  store i64 %519, ptr %110, align 8, !tbaa !56
  br label %1297

520:                                              ; preds = %494
  %521 = load ptr, ptr %22, align 8, !tbaa !96
  br label %522

522:                                              ; preds = %522, %520
  %523 = phi i64 [ 0, %520 ], [ %528, %522 ]
  %524 = getelementptr inbounds nuw i32, ptr %480, i64 %523
  %525 = load i32, ptr %524, align 4, !tbaa !4
  %526 = sext i32 %525 to i64
  %527 = getelementptr inbounds i32, ptr %521, i64 %526
  store i32 1, ptr %527, align 4, !tbaa !4
  %528 = add nuw nsw i64 %523, 1
  %529 = icmp eq i64 %528, %472
  br i1 %529, label %537, label %522, !llvm.loop !97

530:                                              ; preds = %501, %500
  %531 = phi ptr [ %480, %500 ], [ %503, %501 ]
  %532 = phi i64 [ %479, %500 ], [ %502, %501 ]
  %533 = phi i64 [ %472, %500 ], [ 0, %501 ]
  %534 = phi ptr [ %127, %500 ], [ %124, %501 ]
  %535 = load ptr, ptr %30, align 8, !tbaa !98
  %536 = call fastcc i64 @keep(ptr noundef %5, ptr noundef %531, i64 noundef %533, ptr noundef %535) #7
  br label %550

537:                                              ; preds = %522
  %538 = load ptr, ptr %30, align 8, !tbaa !98
  %539 = call fastcc i64 @keep(ptr noundef %5, ptr noundef nonnull %480, i64 noundef %472, ptr noundef %538) #7
  %540 = load ptr, ptr %34, align 8, !tbaa !89
  %541 = load ptr, ptr %22, align 8, !tbaa !96
  br label %542

542:                                              ; preds = %542, %537
  %543 = phi i64 [ 0, %537 ], [ %548, %542 ]
  %544 = getelementptr inbounds nuw i32, ptr %540, i64 %543
  %545 = load i32, ptr %544, align 4, !tbaa !4
  %546 = sext i32 %545 to i64
  %547 = getelementptr inbounds i32, ptr %541, i64 %546
  store i32 0, ptr %547, align 4, !tbaa !4
  %548 = add nuw nsw i64 %543, 1
  %549 = icmp eq i64 %548, %472
  br i1 %549, label %550, label %542, !llvm.loop !97

550:                                              ; preds = %542, %530
  %551 = phi i64 [ %536, %530 ], [ %539, %542 ]
  %552 = phi ptr [ %534, %530 ], [ %497, %542 ]
  %553 = phi i64 [ 1, %530 ], [ %495, %542 ]
  %554 = phi i64 [ %532, %530 ], [ %479, %542 ]
  %555 = icmp slt i64 %551, 0
  br i1 %555, label %573, label %556

556:                                              ; preds = %550
  %557 = load ptr, ptr %30, align 8, !tbaa !98
  %558 = icmp eq i64 %551, 0
  br i1 %558, label %575, label %559

559:                                              ; preds = %556
  %560 = load ptr, ptr %125, align 8, !tbaa !29
  br label %561

561:                                              ; preds = %561, %559
  %562 = phi i64 [ 0, %559 ], [ %571, %561 ]
  %563 = phi i64 [ 0, %559 ], [ %570, %561 ]
  %564 = getelementptr inbounds nuw i32, ptr %557, i64 %562
  %565 = load i32, ptr %564, align 4, !tbaa !4
  %566 = sext i32 %565 to i64
  %567 = getelementptr inbounds i32, ptr %560, i64 %566
  %568 = load i32, ptr %567, align 4, !tbaa !4
  %569 = sext i32 %568 to i64
  %570 = add nsw i64 %563, %569
  %571 = add nuw nsw i64 %562, 1
  %572 = icmp eq i64 %571, %551
  br i1 %572, label %577, label %561, !llvm.loop !50

573:                                              ; preds = %550
  %574 = load i64, ptr %110, align 8, !tbaa !56
  br label %1255

575:                                              ; preds = %556
  %576 = load i64, ptr %110, align 8, !tbaa !56
  br i1 %171, label %1255, label %581

577:                                              ; preds = %561
  %578 = load i64, ptr %110, align 8, !tbaa !56
  %579 = mul nsw i64 %570, 5
  %580 = icmp sgt i64 %579, %167
  br i1 %580, label %1255, label %583

581:                                              ; preds = %575
  %582 = load ptr, ptr %5, align 8, !tbaa !41
  br label %609

583:                                              ; preds = %577
  %584 = load ptr, ptr %22, align 8, !tbaa !96
  br label %585

585:                                              ; preds = %585, %583
  %586 = phi i64 [ 0, %583 ], [ %591, %585 ]
  %587 = getelementptr inbounds nuw i32, ptr %557, i64 %586
  %588 = load i32, ptr %587, align 4, !tbaa !4
  %589 = sext i32 %588 to i64
  %590 = getelementptr inbounds i32, ptr %584, i64 %589
  store i32 1, ptr %590, align 4, !tbaa !4
  %591 = add nuw nsw i64 %586, 1
  %592 = icmp eq i64 %591, %551
  br i1 %592, label %593, label %585, !llvm.loop !97

593:                                              ; preds = %585
  %594 = load ptr, ptr %5, align 8, !tbaa !41
  %595 = getelementptr inbounds nuw i8, ptr %594, i64 56
  %596 = load ptr, ptr %595, align 8, !tbaa !29
  br label %597

597:                                              ; preds = %597, %593
  %598 = phi i64 [ 0, %593 ], [ %607, %597 ]
  %599 = phi i64 [ 0, %593 ], [ %606, %597 ]
  %600 = getelementptr inbounds nuw i32, ptr %557, i64 %598
  %601 = load i32, ptr %600, align 4, !tbaa !4
  %602 = sext i32 %601 to i64
  %603 = getelementptr inbounds i32, ptr %596, i64 %602
  %604 = load i32, ptr %603, align 4, !tbaa !4
  %605 = sext i32 %604 to i64
  %606 = add nsw i64 %599, %605
  %607 = add nuw nsw i64 %598, 1
  %608 = icmp eq i64 %607, %551
  br i1 %608, label %609, label %597, !llvm.loop !50

609:                                              ; preds = %597, %581
  %610 = phi i64 [ 0, %581 ], [ %570, %597 ]
  %611 = phi i64 [ %576, %581 ], [ %578, %597 ]
  %612 = phi ptr [ %582, %581 ], [ %594, %597 ]
  %613 = phi i64 [ 0, %581 ], [ %606, %597 ]
  %614 = getelementptr inbounds nuw i8, ptr %612, i64 64
  %615 = getelementptr inbounds nuw i8, ptr %612, i64 152
  %616 = getelementptr inbounds nuw i8, ptr %612, i64 160
  %617 = getelementptr inbounds nuw i8, ptr %612, i64 56
  br label %618

618:                                              ; preds = %634, %609
  %619 = phi i64 [ %551, %609 ], [ %823, %634 ]
  %620 = phi i64 [ %613, %609 ], [ %822, %634 ]
  %621 = phi i32 [ 0, %609 ], [ %636, %634 ]
  %622 = icmp sgt i64 %619, 0
  br i1 %622, label %623, label %848

623:                                              ; preds = %618
  %624 = load ptr, ptr %30, align 8, !tbaa !98
  %625 = load ptr, ptr %34, align 8, !tbaa !89
  br label %627

626:                                              ; preds = %627
  call fastcc void @count_readers(ptr noundef nonnull %5, i64 noundef %619) #7
  br label %639

627:                                              ; preds = %627, %623
  %628 = phi i64 [ 0, %623 ], [ %632, %627 ]
  %629 = getelementptr inbounds nuw i32, ptr %624, i64 %628
  %630 = load i32, ptr %629, align 4, !tbaa !4
  %631 = getelementptr inbounds nuw i32, ptr %625, i64 %628
  store i32 %630, ptr %631, align 4, !tbaa !4
  %632 = add nuw nsw i64 %628, 1
  %633 = icmp eq i64 %632, %619
  br i1 %633, label %626, label %627, !llvm.loop !99

634:                                              ; preds = %821
  %635 = icmp eq i64 %822, %620
  %636 = add nuw nsw i32 %621, 1
  %637 = icmp eq i32 %636, 3
  %638 = select i1 %635, i1 true, i1 %637
  br i1 %638, label %826, label %618, !llvm.loop !100

639:                                              ; preds = %821, %626
  %640 = phi i64 [ %823, %821 ], [ %619, %626 ]
  %641 = phi i64 [ %822, %821 ], [ %620, %626 ]
  %642 = phi i64 [ %824, %821 ], [ 0, %626 ]
  %643 = load ptr, ptr %34, align 8, !tbaa !89
  %644 = getelementptr inbounds nuw i32, ptr %643, i64 %642
  %645 = load i32, ptr %644, align 4, !tbaa !4
  %646 = load ptr, ptr %614, align 8, !tbaa !34
  %647 = sext i32 %645 to i64
  %648 = getelementptr inbounds i32, ptr %646, i64 %647
  %649 = load i32, ptr %648, align 4, !tbaa !4
  %650 = icmp slt i32 %649, 0
  br i1 %650, label %821, label %651

651:                                              ; preds = %639
  %652 = load ptr, ptr %22, align 8, !tbaa !96
  %653 = getelementptr inbounds i32, ptr %652, i64 %647
  %654 = load i32, ptr %653, align 4, !tbaa !4
  %655 = icmp eq i32 %654, 0
  br i1 %655, label %821, label %656

656:                                              ; preds = %651
  %657 = load ptr, ptr %615, align 8, !tbaa !101
  %658 = add nuw nsw i32 %649, 1
  %659 = zext nneg i32 %658 to i64
  %660 = getelementptr inbounds nuw i32, ptr %657, i64 %659
  %661 = load i32, ptr %660, align 4, !tbaa !4
  %662 = zext nneg i32 %649 to i64
  %663 = getelementptr inbounds nuw i32, ptr %657, i64 %662
  %664 = load i32, ptr %663, align 4, !tbaa !4
  %665 = sub nsw i32 %661, %664
  %666 = icmp slt i32 %665, 2
  br i1 %666, label %821, label %667

667:                                              ; preds = %656
  %668 = call fastcc i32 @worth(ptr noundef nonnull %5, i32 noundef %645, i32 noundef 0) #7
  %669 = icmp eq i32 %668, 0
  br i1 %669, label %821, label %670

670:                                              ; preds = %667
  %671 = load ptr, ptr %22, align 8, !tbaa !96
  %672 = getelementptr inbounds i32, ptr %671, i64 %647
  store i32 0, ptr %672, align 4, !tbaa !4
  %673 = load ptr, ptr %615, align 8, !tbaa !101
  %674 = getelementptr inbounds nuw i32, ptr %673, i64 %662
  %675 = load i32, ptr %674, align 4, !tbaa !4
  %676 = getelementptr inbounds nuw i32, ptr %673, i64 %659
  %677 = load i32, ptr %676, align 4, !tbaa !4
  %678 = icmp slt i32 %675, %677
  br i1 %678, label %679, label %818

679:                                              ; preds = %670
  %680 = sext i32 %675 to i64
  %681 = add nuw nsw i64 %640, 1
  br label %683

682:                                              ; preds = %795, %794
  call fastcc void @count_readers(ptr noundef nonnull %5, i64 noundef %756) #7
  br label %821

683:                                              ; preds = %810, %679
  %684 = phi ptr [ %671, %679 ], [ %811, %810 ]
  %685 = phi i64 [ %680, %679 ], [ %812, %810 ]
  %686 = load ptr, ptr %616, align 8, !tbaa !102
  %687 = getelementptr inbounds i32, ptr %686, i64 %685
  %688 = load i32, ptr %687, align 4, !tbaa !4
  %689 = load i64, ptr %110, align 8, !tbaa !56
  %690 = add nsw i64 %689, 1
  store i64 %690, ptr %110, align 8, !tbaa !56
  %691 = icmp eq i32 %688, %645
  br i1 %691, label %810, label %692

692:                                              ; preds = %683
  %693 = load ptr, ptr %617, align 8, !tbaa !29
  %694 = sext i32 %688 to i64
  %695 = getelementptr inbounds i32, ptr %693, i64 %694
  %696 = load i32, ptr %695, align 4, !tbaa !4
  %697 = icmp slt i32 %696, %668
  br i1 %697, label %698, label %810

698:                                              ; preds = %692
  %699 = getelementptr inbounds i32, ptr %684, i64 %694
  %700 = load i32, ptr %699, align 4, !tbaa !4
  %701 = icmp eq i32 %700, 0
  br i1 %701, label %702, label %810

702:                                              ; preds = %698
  %703 = load ptr, ptr %5, align 8, !tbaa !41
  %704 = getelementptr inbounds nuw i8, ptr %703, i64 104
  %705 = load ptr, ptr %704, align 8, !tbaa !21
  %706 = getelementptr inbounds i32, ptr %705, i64 %694
  %707 = load i32, ptr %706, align 4, !tbaa !4
  %708 = getelementptr i8, ptr %706, i64 4
  %709 = load i32, ptr %708, align 4, !tbaa !4
  %710 = icmp slt i32 %707, %709
  br i1 %710, label %711, label %752

711:                                              ; preds = %702
  %712 = getelementptr inbounds nuw i8, ptr %703, i64 120
  %713 = load ptr, ptr %712, align 8, !tbaa !77
  %714 = getelementptr inbounds nuw i8, ptr %703, i64 112
  %715 = load ptr, ptr %714, align 8, !tbaa !23
  %716 = getelementptr inbounds nuw i8, ptr %703, i64 128
  %717 = sext i32 %707 to i64
  br label %722

718:                                              ; preds = %749
  %719 = add nsw i64 %723, 1
  %720 = trunc i64 %719 to i32
  %721 = icmp eq i32 %709, %720
  br i1 %721, label %752, label %722, !llvm.loop !103

722:                                              ; preds = %718, %711
  %723 = phi i64 [ %717, %711 ], [ %719, %718 ]
  %724 = getelementptr inbounds i32, ptr %715, i64 %723
  %725 = load i32, ptr %724, align 4, !tbaa !4
  %726 = sext i32 %725 to i64
  %727 = getelementptr inbounds i32, ptr %713, i64 %726
  %728 = load i32, ptr %727, align 4, !tbaa !4
  %729 = getelementptr i8, ptr %727, i64 4
  %730 = load i32, ptr %729, align 4, !tbaa !4
  %731 = icmp slt i32 %728, %730
  br i1 %731, label %732, label %749

732:                                              ; preds = %722
  %733 = load ptr, ptr %716, align 8, !tbaa !76
  %734 = sext i32 %728 to i64
  br label %735

735:                                              ; preds = %743, %732
  %736 = phi i64 [ %734, %732 ], [ %744, %743 ]
  %737 = getelementptr inbounds i32, ptr %733, i64 %736
  %738 = load i32, ptr %737, align 4, !tbaa !4
  %739 = sext i32 %738 to i64
  %740 = getelementptr inbounds i32, ptr %684, i64 %739
  %741 = load i32, ptr %740, align 4, !tbaa !4
  %742 = icmp eq i32 %741, 0
  br i1 %742, label %743, label %747

743:                                              ; preds = %735
  %744 = add nsw i64 %736, 1
  %745 = trunc i64 %744 to i32
  %746 = icmp eq i32 %730, %745
  br i1 %746, label %810, label %735, !llvm.loop !104

747:                                              ; preds = %735
  %748 = trunc nsw i64 %736 to i32
  br label %749

749:                                              ; preds = %747, %722
  %750 = phi i32 [ %728, %722 ], [ %748, %747 ]
  %751 = icmp eq i32 %750, %730
  br i1 %751, label %810, label %718

752:                                              ; preds = %718, %702
  store i32 1, ptr %699, align 4, !tbaa !4
  %753 = load ptr, ptr %30, align 8, !tbaa !98
  %754 = getelementptr inbounds nuw i32, ptr %753, i64 %640
  store i32 %688, ptr %754, align 4, !tbaa !4
  %755 = load ptr, ptr %32, align 8, !tbaa !105
  %756 = call fastcc i64 @keep(ptr noundef nonnull %5, ptr noundef %753, i64 noundef %681, ptr noundef %755) #7
  %757 = icmp slt i64 %756, 0
  br i1 %757, label %758, label %761

758:                                              ; preds = %752
  %759 = load ptr, ptr %22, align 8, !tbaa !96
  %760 = getelementptr inbounds i32, ptr %759, i64 %694
  store i32 0, ptr %760, align 4, !tbaa !4
  br label %810

761:                                              ; preds = %752
  %762 = load ptr, ptr %32, align 8, !tbaa !105
  %763 = icmp eq i64 %756, 0
  br i1 %763, label %778, label %764

764:                                              ; preds = %761
  %765 = load ptr, ptr %617, align 8, !tbaa !29
  br label %766

766:                                              ; preds = %766, %764
  %767 = phi i64 [ 0, %764 ], [ %776, %766 ]
  %768 = phi i64 [ 0, %764 ], [ %775, %766 ]
  %769 = getelementptr inbounds nuw i32, ptr %762, i64 %767
  %770 = load i32, ptr %769, align 4, !tbaa !4
  %771 = sext i32 %770 to i64
  %772 = getelementptr inbounds i32, ptr %765, i64 %771
  %773 = load i32, ptr %772, align 4, !tbaa !4
  %774 = sext i32 %773 to i64
  %775 = add nsw i64 %768, %774
  %776 = add nuw nsw i64 %767, 1
  %777 = icmp eq i64 %776, %756
  br i1 %777, label %778, label %766, !llvm.loop !50

778:                                              ; preds = %766, %761
  %779 = phi i64 [ 0, %761 ], [ %775, %766 ]
  %780 = load ptr, ptr %22, align 8, !tbaa !96
  %781 = getelementptr inbounds i32, ptr %780, i64 %694
  store i32 0, ptr %781, align 4, !tbaa !4
  %782 = icmp slt i64 %779, %641
  br i1 %782, label %783, label %810

783:                                              ; preds = %778
  %784 = load ptr, ptr %30, align 8, !tbaa !98
  %785 = icmp sgt i64 %640, 0
  br i1 %785, label %786, label %794

786:                                              ; preds = %786, %783
  %787 = phi i64 [ %792, %786 ], [ 0, %783 ]
  %788 = getelementptr inbounds nuw i32, ptr %784, i64 %787
  %789 = load i32, ptr %788, align 4, !tbaa !4
  %790 = sext i32 %789 to i64
  %791 = getelementptr inbounds i32, ptr %780, i64 %790
  store i32 0, ptr %791, align 4, !tbaa !4
  %792 = add nuw nsw i64 %787, 1
  %793 = icmp eq i64 %792, %640
  br i1 %793, label %794, label %786, !llvm.loop !97

794:                                              ; preds = %786, %783
  br i1 %763, label %682, label %803

795:                                              ; preds = %803, %795
  %796 = phi i64 [ %801, %795 ], [ 0, %803 ]
  %797 = getelementptr inbounds nuw i32, ptr %784, i64 %796
  %798 = load i32, ptr %797, align 4, !tbaa !4
  %799 = sext i32 %798 to i64
  %800 = getelementptr inbounds i32, ptr %780, i64 %799
  store i32 1, ptr %800, align 4, !tbaa !4
  %801 = add nuw nsw i64 %796, 1
  %802 = icmp eq i64 %801, %756
  br i1 %802, label %682, label %795, !llvm.loop !97

803:                                              ; preds = %803, %794
  %804 = phi i64 [ %808, %803 ], [ 0, %794 ]
  %805 = getelementptr inbounds nuw i32, ptr %762, i64 %804
  %806 = load i32, ptr %805, align 4, !tbaa !4
  %807 = getelementptr inbounds nuw i32, ptr %784, i64 %804
  store i32 %806, ptr %807, align 4, !tbaa !4
  %808 = add nuw nsw i64 %804, 1
  %809 = icmp eq i64 %808, %756
  br i1 %809, label %795, label %803, !llvm.loop !106

810:                                              ; preds = %778, %758, %749, %743, %698, %692, %683
  %811 = phi ptr [ %684, %743 ], [ %684, %683 ], [ %780, %778 ], [ %759, %758 ], [ %684, %698 ], [ %684, %692 ], [ %684, %749 ]
  %812 = add nsw i64 %685, 1
  %813 = load ptr, ptr %615, align 8, !tbaa !101
  %814 = getelementptr inbounds nuw i32, ptr %813, i64 %659
  %815 = load i32, ptr %814, align 4, !tbaa !4
  %816 = sext i32 %815 to i64
  %817 = icmp slt i64 %812, %816
  br i1 %817, label %683, label %818, !llvm.loop !107

818:                                              ; preds = %810, %670
  %819 = phi ptr [ %671, %670 ], [ %811, %810 ]
  %820 = getelementptr inbounds i32, ptr %819, i64 %647
  store i32 1, ptr %820, align 4, !tbaa !4
  br label %821

821:                                              ; preds = %818, %682, %667, %656, %651, %639
  %822 = phi i64 [ %641, %639 ], [ %641, %667 ], [ %641, %656 ], [ %641, %651 ], [ %641, %818 ], [ %779, %682 ]
  %823 = phi i64 [ %640, %639 ], [ %640, %667 ], [ %640, %656 ], [ %640, %651 ], [ %640, %818 ], [ %756, %682 ]
  %824 = add nuw nsw i64 %642, 1
  %825 = icmp eq i64 %824, %619
  br i1 %825, label %634, label %639, !llvm.loop !108

826:                                              ; preds = %634
  %827 = load ptr, ptr %30, align 8, !tbaa !98
  %828 = icmp sgt i64 %823, 0
  br i1 %828, label %829, label %845

829:                                              ; preds = %826
  %830 = load ptr, ptr %125, align 8, !tbaa !29
  br label %831

831:                                              ; preds = %831, %829
  %832 = phi i64 [ 0, %829 ], [ %841, %831 ]
  %833 = phi i64 [ 0, %829 ], [ %840, %831 ]
  %834 = getelementptr inbounds nuw i32, ptr %827, i64 %832
  %835 = load i32, ptr %834, align 4, !tbaa !4
  %836 = sext i32 %835 to i64
  %837 = getelementptr inbounds i32, ptr %830, i64 %836
  %838 = load i32, ptr %837, align 4, !tbaa !4
  %839 = sext i32 %838 to i64
  %840 = add nsw i64 %833, %839
  %841 = add nuw nsw i64 %832, 1
  %842 = icmp eq i64 %841, %823
  br i1 %842, label %843, label %831, !llvm.loop !50

843:                                              ; preds = %831
  %844 = icmp slt i64 %840, %137
  br i1 %844, label %852, label %1245

845:                                              ; preds = %826
  br i1 %172, label %846, label %1255

846:                                              ; preds = %845
  %847 = load ptr, ptr %5, align 8, !tbaa !41
  br label %856

848:                                              ; preds = %618
  call fastcc void @count_readers(ptr noundef nonnull %5, i64 noundef 0) #7
  br i1 %168, label %849, label %1255

849:                                              ; preds = %848
  %850 = load ptr, ptr %30, align 8, !tbaa !98
  %851 = load ptr, ptr %5, align 8, !tbaa !41
  br label %856

852:                                              ; preds = %843
  %853 = load ptr, ptr %5, align 8, !tbaa !41
  %854 = load ptr, ptr %50, align 8, !tbaa !109
  %855 = load ptr, ptr %52, align 8, !tbaa !110
  br label %868

856:                                              ; preds = %868, %849, %846
  %857 = phi ptr [ %851, %849 ], [ %847, %846 ], [ %853, %868 ]
  %858 = phi i1 [ false, %849 ], [ false, %846 ], [ true, %868 ]
  %859 = phi ptr [ %850, %849 ], [ %827, %846 ], [ %827, %868 ]
  %860 = phi i64 [ 0, %849 ], [ 0, %846 ], [ %823, %868 ]
  %861 = phi i64 [ 0, %849 ], [ 0, %846 ], [ %840, %868 ]
  %862 = getelementptr inbounds nuw i8, ptr %857, i64 40
  %863 = load i64, ptr %862, align 8, !tbaa !38
  %864 = icmp sgt i64 %863, 0
  br i1 %864, label %865, label %879

865:                                              ; preds = %856
  %866 = load ptr, ptr %58, align 8, !tbaa !111
  %867 = shl nuw i64 %863, 2
  call void @llvm.memset.p0.i64(ptr align 4 %866, i8 -1, i64 %867, i1 false), !tbaa !4
  br label %879

868:                                              ; preds = %868, %852
  %869 = phi i64 [ 0, %852 ], [ %877, %868 ]
  %870 = getelementptr inbounds nuw i32, ptr %827, i64 %869
  %871 = load i32, ptr %870, align 4, !tbaa !4
  %872 = sext i32 %871 to i64
  %873 = getelementptr inbounds i32, ptr %854, i64 %872
  store i32 0, ptr %873, align 4, !tbaa !4
  %874 = load i32, ptr %870, align 4, !tbaa !4
  %875 = sext i32 %874 to i64
  %876 = getelementptr inbounds i32, ptr %855, i64 %875
  store i32 -1, ptr %876, align 4, !tbaa !4
  %877 = add nuw nsw i64 %869, 1
  %878 = icmp eq i64 %877, %823
  br i1 %878, label %856, label %868, !llvm.loop !112

879:                                              ; preds = %865, %856
  br i1 %858, label %880, label %891

880:                                              ; preds = %879
  %881 = getelementptr inbounds nuw i8, ptr %857, i64 104
  %882 = load ptr, ptr %881, align 8, !tbaa !21
  %883 = getelementptr inbounds nuw i8, ptr %857, i64 80
  %884 = load ptr, ptr %883, align 8, !tbaa !30
  %885 = getelementptr inbounds nuw i8, ptr %857, i64 120
  %886 = getelementptr inbounds nuw i8, ptr %857, i64 112
  %887 = getelementptr inbounds nuw i8, ptr %857, i64 128
  %888 = getelementptr inbounds nuw i8, ptr %857, i64 48
  %889 = getelementptr inbounds nuw i8, ptr %857, i64 240
  %890 = getelementptr inbounds nuw i8, ptr %857, i64 248
  br label %900

891:                                              ; preds = %997, %879
  %892 = phi i64 [ 0, %879 ], [ %962, %997 ]
  br i1 %864, label %893, label %1005

893:                                              ; preds = %891
  %894 = getelementptr inbounds nuw i8, ptr %857, i64 256
  %895 = load ptr, ptr %894, align 8, !tbaa !113
  %896 = getelementptr inbounds nuw i8, ptr %857, i64 264
  %897 = getelementptr inbounds nuw i8, ptr %857, i64 48
  %898 = load i32, ptr %895, align 4, !tbaa !4
  %899 = load ptr, ptr %58, align 8
  br label %1009

900:                                              ; preds = %997, %880
  %901 = phi i64 [ 0, %880 ], [ %999, %997 ]
  %902 = phi i64 [ 0, %880 ], [ %998, %997 ]
  %903 = phi i64 [ 0, %880 ], [ %962, %997 ]
  %904 = getelementptr inbounds nuw i32, ptr %859, i64 %901
  %905 = load i32, ptr %904, align 4, !tbaa !4
  %906 = sext i32 %905 to i64
  %907 = getelementptr inbounds i32, ptr %884, i64 %906
  %908 = load i32, ptr %907, align 4, !tbaa !4
  %909 = icmp eq i32 %908, 0
  br i1 %909, label %910, label %961

910:                                              ; preds = %900
  %911 = getelementptr inbounds i32, ptr %882, i64 %906
  %912 = load i32, ptr %911, align 4, !tbaa !4
  %913 = getelementptr i8, ptr %911, i64 4
  %914 = sext i32 %912 to i64
  %915 = load ptr, ptr %22, align 8
  %916 = load ptr, ptr %60, align 8
  %917 = load ptr, ptr %52, align 8
  %918 = load ptr, ptr %62, align 8
  %919 = load ptr, ptr %50, align 8
  %920 = getelementptr inbounds i32, ptr %919, i64 %906
  br label %921

921:                                              ; preds = %949, %910
  %922 = phi i64 [ %914, %910 ], [ %958, %949 ]
  %923 = phi i64 [ %903, %910 ], [ %957, %949 ]
  %924 = load i32, ptr %913, align 4, !tbaa !4
  %925 = sext i32 %924 to i64
  %926 = icmp slt i64 %922, %925
  br i1 %926, label %927, label %961

927:                                              ; preds = %921
  %928 = load ptr, ptr %885, align 8, !tbaa !77
  %929 = load ptr, ptr %886, align 8, !tbaa !23
  %930 = getelementptr inbounds i32, ptr %929, i64 %922
  %931 = load i32, ptr %930, align 4, !tbaa !4
  %932 = sext i32 %931 to i64
  %933 = getelementptr inbounds i32, ptr %928, i64 %932
  %934 = load i32, ptr %933, align 4, !tbaa !4
  %935 = load ptr, ptr %887, align 8, !tbaa !76
  %936 = sext i32 %934 to i64
  br label %937

937:                                              ; preds = %937, %927
  %938 = phi i64 [ %945, %937 ], [ %936, %927 ]
  %939 = getelementptr inbounds i32, ptr %935, i64 %938
  %940 = load i32, ptr %939, align 4, !tbaa !4
  %941 = sext i32 %940 to i64
  %942 = getelementptr inbounds i32, ptr %915, i64 %941
  %943 = load i32, ptr %942, align 4, !tbaa !4
  %944 = icmp eq i32 %943, 0
  %945 = add nsw i64 %938, 1
  br i1 %944, label %937, label %946, !llvm.loop !114

946:                                              ; preds = %937
  %947 = load i64, ptr %888, align 8, !tbaa !39
  %948 = icmp slt i64 %923, %947
  br i1 %948, label %949, label %1232

949:                                              ; preds = %946
  %950 = getelementptr inbounds i32, ptr %916, i64 %923
  store i32 %905, ptr %950, align 4, !tbaa !4
  %951 = getelementptr inbounds i32, ptr %917, i64 %941
  %952 = load i32, ptr %951, align 4, !tbaa !4
  %953 = getelementptr inbounds i32, ptr %918, i64 %923
  store i32 %952, ptr %953, align 4, !tbaa !4
  %954 = trunc i64 %923 to i32
  store i32 %954, ptr %951, align 4, !tbaa !4
  %955 = load i32, ptr %920, align 4, !tbaa !4
  %956 = add nsw i32 %955, 1
  store i32 %956, ptr %920, align 4, !tbaa !4
  %957 = add nsw i64 %923, 1
  %958 = add nsw i64 %922, 1
  %959 = load i32, ptr %907, align 4, !tbaa !4
  %960 = icmp eq i32 %959, 0
  br i1 %960, label %921, label %961, !llvm.loop !115

961:                                              ; preds = %949, %921, %900
  %962 = phi i64 [ %903, %900 ], [ %923, %921 ], [ %957, %949 ]
  %963 = load ptr, ptr %889, align 8, !tbaa !116
  %964 = getelementptr inbounds i32, ptr %963, i64 %906
  %965 = load i32, ptr %964, align 4, !tbaa !4
  %966 = getelementptr i8, ptr %964, i64 4
  %967 = load i32, ptr %966, align 4, !tbaa !4
  %968 = icmp slt i32 %965, %967
  br i1 %968, label %969, label %997

969:                                              ; preds = %961
  %970 = load i64, ptr %888, align 8, !tbaa !39
  %971 = sext i32 %965 to i64
  %972 = load ptr, ptr %64, align 8
  %973 = load ptr, ptr %58, align 8
  %974 = load ptr, ptr %66, align 8
  br label %975

975:                                              ; preds = %979, %969
  %976 = phi i64 [ %971, %969 ], [ %992, %979 ]
  %977 = phi i64 [ %902, %969 ], [ %993, %979 ]
  %978 = icmp slt i64 %977, %970
  br i1 %978, label %979, label %1232

979:                                              ; preds = %975
  %980 = getelementptr inbounds i32, ptr %972, i64 %977
  store i32 %905, ptr %980, align 4, !tbaa !4
  %981 = load ptr, ptr %890, align 8, !tbaa !117
  %982 = getelementptr inbounds i32, ptr %981, i64 %976
  %983 = load i32, ptr %982, align 4, !tbaa !4
  %984 = sext i32 %983 to i64
  %985 = getelementptr inbounds i32, ptr %973, i64 %984
  %986 = load i32, ptr %985, align 4, !tbaa !4
  %987 = getelementptr inbounds i32, ptr %974, i64 %977
  store i32 %986, ptr %987, align 4, !tbaa !4
  %988 = trunc i64 %977 to i32
  %989 = load i32, ptr %982, align 4, !tbaa !4
  %990 = sext i32 %989 to i64
  %991 = getelementptr inbounds i32, ptr %973, i64 %990
  store i32 %988, ptr %991, align 4, !tbaa !4
  %992 = add nsw i64 %976, 1
  %993 = add nsw i64 %977, 1
  %994 = load i32, ptr %966, align 4, !tbaa !4
  %995 = sext i32 %994 to i64
  %996 = icmp slt i64 %992, %995
  br i1 %996, label %975, label %997, !llvm.loop !118

997:                                              ; preds = %979, %961
  %998 = phi i64 [ %902, %961 ], [ %993, %979 ]
  %999 = add nuw nsw i64 %901, 1
  %1000 = icmp eq i64 %999, %860
  br i1 %1000, label %891, label %900, !llvm.loop !119

1001:                                             ; preds = %1085, %1009
  %1002 = phi i32 [ %1015, %1009 ], [ %1086, %1085 ]
  %1003 = phi i64 [ %1012, %1009 ], [ %1087, %1085 ]
  %1004 = icmp eq i64 %1013, %863
  br i1 %1004, label %1005, label %1009, !llvm.loop !120

1005:                                             ; preds = %1001, %891
  br i1 %858, label %1006, label %1229

1006:                                             ; preds = %1005
  %1007 = load ptr, ptr %50, align 8, !tbaa !109
  %1008 = load ptr, ptr %38, align 8
  br label %1098

1009:                                             ; preds = %1001, %893
  %1010 = phi i32 [ %898, %893 ], [ %1002, %1001 ]
  %1011 = phi i64 [ 0, %893 ], [ %1013, %1001 ]
  %1012 = phi i64 [ %892, %893 ], [ %1003, %1001 ]
  %1013 = add nuw nsw i64 %1011, 1
  %1014 = getelementptr inbounds nuw i32, ptr %895, i64 %1013
  %1015 = load i32, ptr %1014, align 4, !tbaa !4
  %1016 = icmp slt i32 %1010, %1015
  br i1 %1016, label %1017, label %1001

1017:                                             ; preds = %1009
  %1018 = load ptr, ptr %896, align 8, !tbaa !121
  %1019 = getelementptr inbounds nuw i32, ptr %899, i64 %1011
  %1020 = sext i32 %1010 to i64
  br label %1021

1021:                                             ; preds = %1085, %1017
  %1022 = phi i32 [ %1015, %1017 ], [ %1086, %1085 ]
  %1023 = phi i64 [ %1020, %1017 ], [ %1088, %1085 ]
  %1024 = phi i64 [ %1012, %1017 ], [ %1087, %1085 ]
  %1025 = getelementptr inbounds i32, ptr %1018, i64 %1023
  %1026 = load i32, ptr %1025, align 4, !tbaa !4
  %1027 = sext i32 %1026 to i64
  %1028 = getelementptr inbounds i32, ptr %899, i64 %1027
  %1029 = load i32, ptr %1028, align 4, !tbaa !4
  %1030 = icmp slt i32 %1029, 0
  br i1 %1030, label %1085, label %1031

1031:                                             ; preds = %1021
  %1032 = load ptr, ptr %64, align 8
  %1033 = load ptr, ptr %66, align 8
  br label %1034

1034:                                             ; preds = %1077, %1031
  %1035 = phi i32 [ %1081, %1077 ], [ %1029, %1031 ]
  %1036 = phi i64 [ %1079, %1077 ], [ %1024, %1031 ]
  %1037 = load i32, ptr %1019, align 4, !tbaa !4
  %1038 = icmp slt i32 %1037, 0
  %1039 = zext nneg i32 %1035 to i64
  br i1 %1038, label %1077, label %1040

1040:                                             ; preds = %1034
  %1041 = getelementptr inbounds nuw i32, ptr %1032, i64 %1039
  %1042 = load ptr, ptr %60, align 8
  %1043 = load ptr, ptr %52, align 8
  %1044 = load ptr, ptr %62, align 8
  %1045 = load ptr, ptr %50, align 8
  %1046 = load ptr, ptr %66, align 8
  br label %1047

1047:                                             ; preds = %1062, %1040
  %1048 = phi i32 [ %1037, %1040 ], [ %1075, %1062 ]
  %1049 = phi i64 [ %1036, %1040 ], [ %1073, %1062 ]
  %1050 = load i32, ptr %1041, align 4, !tbaa !4
  %1051 = zext nneg i32 %1048 to i64
  %1052 = getelementptr inbounds nuw i32, ptr %1032, i64 %1051
  %1053 = load i32, ptr %1052, align 4, !tbaa !4
  %1054 = icmp eq i32 %1050, %1053
  br i1 %1054, label %1055, label %1059

1055:                                             ; preds = %1047
  %1056 = load ptr, ptr %44, align 8, !tbaa !58
  %1057 = sext i32 %1050 to i64
  %1058 = getelementptr inbounds i32, ptr %1056, i64 %1057
  store i32 1, ptr %1058, align 4, !tbaa !4
  br label %1232

1059:                                             ; preds = %1047
  %1060 = load i64, ptr %897, align 8, !tbaa !39
  %1061 = icmp slt i64 %1049, %1060
  br i1 %1061, label %1062, label %1232

1062:                                             ; preds = %1059
  %1063 = getelementptr inbounds i32, ptr %1042, i64 %1049
  store i32 %1053, ptr %1063, align 4, !tbaa !4
  %1064 = sext i32 %1050 to i64
  %1065 = getelementptr inbounds i32, ptr %1043, i64 %1064
  %1066 = load i32, ptr %1065, align 4, !tbaa !4
  %1067 = getelementptr inbounds i32, ptr %1044, i64 %1049
  store i32 %1066, ptr %1067, align 4, !tbaa !4
  %1068 = trunc i64 %1049 to i32
  store i32 %1068, ptr %1065, align 4, !tbaa !4
  %1069 = sext i32 %1053 to i64
  %1070 = getelementptr inbounds i32, ptr %1045, i64 %1069
  %1071 = load i32, ptr %1070, align 4, !tbaa !4
  %1072 = add nsw i32 %1071, 1
  store i32 %1072, ptr %1070, align 4, !tbaa !4
  %1073 = add nsw i64 %1049, 1
  %1074 = getelementptr inbounds nuw i32, ptr %1046, i64 %1051
  %1075 = load i32, ptr %1074, align 4, !tbaa !4
  %1076 = icmp slt i32 %1075, 0
  br i1 %1076, label %1077, label %1047, !llvm.loop !122

1077:                                             ; preds = %1062, %1034
  %1078 = phi ptr [ %1033, %1034 ], [ %1046, %1062 ]
  %1079 = phi i64 [ %1036, %1034 ], [ %1073, %1062 ]
  %1080 = getelementptr inbounds nuw i32, ptr %1078, i64 %1039
  %1081 = load i32, ptr %1080, align 4, !tbaa !4
  %1082 = icmp slt i32 %1081, 0
  br i1 %1082, label %1083, label %1034, !llvm.loop !123

1083:                                             ; preds = %1077
  %1084 = load i32, ptr %1014, align 4, !tbaa !4
  br label %1085

1085:                                             ; preds = %1083, %1021
  %1086 = phi i32 [ %1022, %1021 ], [ %1084, %1083 ]
  %1087 = phi i64 [ %1024, %1021 ], [ %1079, %1083 ]
  %1088 = add nsw i64 %1023, 1
  %1089 = sext i32 %1086 to i64
  %1090 = icmp slt i64 %1088, %1089
  br i1 %1090, label %1021, label %1001, !llvm.loop !124

1091:                                             ; preds = %1110
  %1092 = icmp eq i64 %1111, 0
  br i1 %1092, label %1148, label %1093

1093:                                             ; preds = %1091
  %1094 = load ptr, ptr %52, align 8, !tbaa !110
  %1095 = load ptr, ptr %38, align 8, !tbaa !125
  %1096 = load ptr, ptr %60, align 8
  %1097 = load ptr, ptr %62, align 8
  br label %1114

1098:                                             ; preds = %1110, %1006
  %1099 = phi i64 [ 0, %1006 ], [ %1112, %1110 ]
  %1100 = phi i64 [ 0, %1006 ], [ %1111, %1110 ]
  %1101 = getelementptr inbounds nuw i32, ptr %859, i64 %1099
  %1102 = load i32, ptr %1101, align 4, !tbaa !4
  %1103 = sext i32 %1102 to i64
  %1104 = getelementptr inbounds i32, ptr %1007, i64 %1103
  %1105 = load i32, ptr %1104, align 4, !tbaa !4
  %1106 = icmp eq i32 %1105, 0
  br i1 %1106, label %1107, label %1110

1107:                                             ; preds = %1098
  %1108 = add nsw i64 %1100, 1
  %1109 = getelementptr inbounds i32, ptr %1008, i64 %1100
  store i32 %1102, ptr %1109, align 4, !tbaa !4
  br label %1110

1110:                                             ; preds = %1107, %1098
  %1111 = phi i64 [ %1100, %1098 ], [ %1108, %1107 ]
  %1112 = add nuw nsw i64 %1099, 1
  %1113 = icmp eq i64 %1112, %860
  br i1 %1113, label %1091, label %1098, !llvm.loop !126

1114:                                             ; preds = %1124, %1093
  %1115 = phi i64 [ 0, %1093 ], [ %1126, %1124 ]
  %1116 = phi i64 [ %1111, %1093 ], [ %1125, %1124 ]
  %1117 = add nsw i64 %1116, -1
  %1118 = getelementptr inbounds i32, ptr %1095, i64 %1117
  %1119 = load i32, ptr %1118, align 4, !tbaa !4
  %1120 = sext i32 %1119 to i64
  %1121 = getelementptr inbounds i32, ptr %1094, i64 %1120
  %1122 = load i32, ptr %1121, align 4, !tbaa !4
  %1123 = icmp sgt i32 %1122, -1
  br i1 %1123, label %1128, label %1124

1124:                                             ; preds = %1143, %1114
  %1125 = phi i64 [ %1117, %1114 ], [ %1144, %1143 ]
  %1126 = add nuw nsw i64 %1115, 1
  %1127 = icmp eq i64 %1125, 0
  br i1 %1127, label %1148, label %1114, !llvm.loop !127

1128:                                             ; preds = %1143, %1114
  %1129 = phi i32 [ %1146, %1143 ], [ %1122, %1114 ]
  %1130 = phi i64 [ %1144, %1143 ], [ %1117, %1114 ]
  %1131 = zext nneg i32 %1129 to i64
  %1132 = getelementptr inbounds nuw i32, ptr %1096, i64 %1131
  %1133 = load i32, ptr %1132, align 4, !tbaa !4
  %1134 = sext i32 %1133 to i64
  %1135 = getelementptr inbounds i32, ptr %1007, i64 %1134
  %1136 = load i32, ptr %1135, align 4, !tbaa !4
  %1137 = add nsw i32 %1136, -1
  store i32 %1137, ptr %1135, align 4, !tbaa !4
  %1138 = icmp eq i32 %1137, 0
  br i1 %1138, label %1139, label %1143

1139:                                             ; preds = %1128
  %1140 = load i32, ptr %1132, align 4, !tbaa !4
  %1141 = add nsw i64 %1130, 1
  %1142 = getelementptr inbounds i32, ptr %1095, i64 %1130
  store i32 %1140, ptr %1142, align 4, !tbaa !4
  br label %1143

1143:                                             ; preds = %1139, %1128
  %1144 = phi i64 [ %1130, %1128 ], [ %1141, %1139 ]
  %1145 = getelementptr inbounds nuw i32, ptr %1097, i64 %1131
  %1146 = load i32, ptr %1145, align 4, !tbaa !4
  %1147 = icmp sgt i32 %1146, -1
  br i1 %1147, label %1128, label %1124, !llvm.loop !128

1148:                                             ; preds = %1124, %1091
  %1149 = phi i64 [ 0, %1091 ], [ %1126, %1124 ]
  %1150 = icmp slt i64 %1149, %860
  br i1 %1150, label %1151, label %1229

1151:                                             ; preds = %1148
  %1152 = load ptr, ptr %52, align 8
  %1153 = load ptr, ptr %60, align 8
  %1154 = load ptr, ptr %62, align 8
  br label %1157

1155:                                             ; preds = %1187
  %1156 = load ptr, ptr %54, align 8, !tbaa !129
  br label %1194

1157:                                             ; preds = %1187, %1151
  %1158 = phi i32 [ %1188, %1187 ], [ -1, %1151 ]
  %1159 = phi i64 [ %1189, %1187 ], [ 0, %1151 ]
  %1160 = getelementptr inbounds nuw i32, ptr %859, i64 %1159
  %1161 = load i32, ptr %1160, align 4, !tbaa !4
  %1162 = sext i32 %1161 to i64
  %1163 = getelementptr inbounds i32, ptr %1007, i64 %1162
  %1164 = load i32, ptr %1163, align 4, !tbaa !4
  %1165 = icmp eq i32 %1164, 0
  br i1 %1165, label %1187, label %1166

1166:                                             ; preds = %1157
  %1167 = getelementptr inbounds i32, ptr %1152, i64 %1162
  %1168 = load i32, ptr %1167, align 4, !tbaa !4
  %1169 = icmp sgt i32 %1168, -1
  br i1 %1169, label %1170, label %1187

1170:                                             ; preds = %1166
  %1171 = load ptr, ptr %54, align 8
  br label %1172

1172:                                             ; preds = %1183, %1170
  %1173 = phi i32 [ %1168, %1170 ], [ %1185, %1183 ]
  %1174 = zext nneg i32 %1173 to i64
  %1175 = getelementptr inbounds nuw i32, ptr %1153, i64 %1174
  %1176 = load i32, ptr %1175, align 4, !tbaa !4
  %1177 = sext i32 %1176 to i64
  %1178 = getelementptr inbounds i32, ptr %1007, i64 %1177
  %1179 = load i32, ptr %1178, align 4, !tbaa !4
  %1180 = icmp eq i32 %1179, 0
  br i1 %1180, label %1183, label %1181

1181:                                             ; preds = %1172
  %1182 = getelementptr inbounds i32, ptr %1171, i64 %1177
  store i32 %1161, ptr %1182, align 4, !tbaa !4
  br label %1183

1183:                                             ; preds = %1181, %1172
  %1184 = getelementptr inbounds nuw i32, ptr %1154, i64 %1174
  %1185 = load i32, ptr %1184, align 4, !tbaa !4
  %1186 = icmp sgt i32 %1185, -1
  br i1 %1186, label %1172, label %1187, !llvm.loop !130

1187:                                             ; preds = %1183, %1166, %1157
  %1188 = phi i32 [ %1158, %1157 ], [ %1161, %1166 ], [ %1161, %1183 ]
  %1189 = add nuw nsw i64 %1159, 1
  %1190 = icmp eq i64 %1189, %860
  br i1 %1190, label %1155, label %1157, !llvm.loop !131

1191:                                             ; preds = %1194
  %1192 = getelementptr inbounds nuw i8, ptr %857, i64 96
  %1193 = load ptr, ptr %1192, align 8, !tbaa !132
  br label %1202

1194:                                             ; preds = %1194, %1155
  %1195 = phi i64 [ 0, %1155 ], [ %1200, %1194 ]
  %1196 = phi i32 [ %1188, %1155 ], [ %1199, %1194 ]
  %1197 = sext i32 %1196 to i64
  %1198 = getelementptr inbounds i32, ptr %1156, i64 %1197
  %1199 = load i32, ptr %1198, align 4, !tbaa !4
  %1200 = add nuw nsw i64 %1195, 1
  %1201 = icmp eq i64 %1200, %860
  br i1 %1201, label %1191, label %1194, !llvm.loop !133

1202:                                             ; preds = %1202, %1191
  %1203 = phi i32 [ %1210, %1202 ], [ %1199, %1191 ]
  %1204 = phi i32 [ %1208, %1202 ], [ 0, %1191 ]
  %1205 = sext i32 %1203 to i64
  %1206 = getelementptr inbounds i32, ptr %1193, i64 %1205
  %1207 = load i32, ptr %1206, align 4, !tbaa !4
  %1208 = or i32 %1207, %1204
  %1209 = getelementptr inbounds i32, ptr %1156, i64 %1205
  %1210 = load i32, ptr %1209, align 4, !tbaa !4
  %1211 = icmp eq i32 %1210, %1199
  br i1 %1211, label %1212, label %1202, !llvm.loop !134

1212:                                             ; preds = %1202
  %1213 = icmp eq i32 %1208, 0
  %1214 = load ptr, ptr %44, align 8, !tbaa !58
  br label %1215

1215:                                             ; preds = %1215, %1212
  %1216 = phi i32 [ %1227, %1215 ], [ %1199, %1212 ]
  %1217 = sext i32 %1216 to i64
  %1218 = getelementptr inbounds i32, ptr %1193, i64 %1217
  %1219 = load i32, ptr %1218, align 4, !tbaa !4
  %1220 = icmp ne i32 %1219, 0
  %1221 = select i1 %1220, i1 true, i1 %1213
  %1222 = zext i1 %1221 to i32
  %1223 = getelementptr inbounds i32, ptr %1214, i64 %1217
  %1224 = load i32, ptr %1223, align 4, !tbaa !4
  %1225 = or i32 %1224, %1222
  store i32 %1225, ptr %1223, align 4, !tbaa !4
  %1226 = getelementptr inbounds i32, ptr %1156, i64 %1217
  %1227 = load i32, ptr %1226, align 4, !tbaa !4
  %1228 = icmp eq i32 %1227, %1199
  br i1 %1228, label %1229, label %1215, !llvm.loop !135

1229:                                             ; preds = %1215, %1148, %1005
  %1230 = phi i64 [ 0, %1005 ], [ %1149, %1148 ], [ %1149, %1215 ]
  %1231 = icmp eq i64 %1230, %860
  br label %1232

1232:                                             ; preds = %1229, %1059, %1055, %975, %946
  %1233 = phi i1 [ %1231, %1229 ], [ false, %1059 ], [ false, %975 ], [ false, %1055 ], [ false, %946 ]
  br i1 %858, label %1234, label %1244

1234:                                             ; preds = %1232
  %1235 = load ptr, ptr %22, align 8, !tbaa !96
  br label %1236

1236:                                             ; preds = %1236, %1234
  %1237 = phi i64 [ 0, %1234 ], [ %1242, %1236 ]
  %1238 = getelementptr inbounds nuw i32, ptr %859, i64 %1237
  %1239 = load i32, ptr %1238, align 4, !tbaa !4
  %1240 = sext i32 %1239 to i64
  %1241 = getelementptr inbounds i32, ptr %1235, i64 %1240
  store i32 0, ptr %1241, align 4, !tbaa !4
  %1242 = add nuw nsw i64 %1237, 1
  %1243 = icmp eq i64 %1242, %860
  br i1 %1243, label %1244, label %1236, !llvm.loop !97

1244:                                             ; preds = %1236, %1232
  br i1 %1233, label %1264, label %173

1245:                                             ; preds = %843
  %1246 = load ptr, ptr %22, align 8, !tbaa !96
  br label %1247

1247:                                             ; preds = %1247, %1245
  %1248 = phi i64 [ 0, %1245 ], [ %1253, %1247 ]
  %1249 = getelementptr inbounds nuw i32, ptr %827, i64 %1248
  %1250 = load i32, ptr %1249, align 4, !tbaa !4
  %1251 = sext i32 %1250 to i64
  %1252 = getelementptr inbounds i32, ptr %1246, i64 %1251
  store i32 0, ptr %1252, align 4, !tbaa !4
  %1253 = add nuw nsw i64 %1248, 1
  %1254 = icmp eq i64 %1253, %823
  br i1 %1254, label %1255, label %1247, !llvm.loop !97

1255:                                             ; preds = %1247, %848, %845, %577, %575, %573
  %1256 = phi i64 [ %574, %573 ], [ %611, %1247 ], [ %611, %845 ], [ %611, %848 ], [ %578, %577 ], [ %576, %575 ]
  %1257 = phi i64 [ 0, %573 ], [ %610, %1247 ], [ %610, %845 ], [ %610, %848 ], [ %570, %577 ], [ 0, %575 ]
  %1258 = sub nsw i64 %1256, %554
  %1259 = load i64, ptr %110, align 8, !tbaa !56
  %1260 = sub i64 %1259, %1256
  store i64 %553, ptr %552, align 8, !tbaa !49
  %1261 = getelementptr inbounds nuw i8, ptr %552, i64 8
  store i64 %1257, ptr %1261, align 8, !tbaa !49
  %1262 = getelementptr inbounds nuw i8, ptr %552, i64 16
  store i64 %1258, ptr %1262, align 8, !tbaa !49
  %1263 = getelementptr inbounds nuw i8, ptr %552, i64 24
  store i64 %1260, ptr %1263, align 8, !tbaa !49
  br label %1297

1264:                                             ; preds = %1244
  %1265 = sub nsw i64 %611, %554
  %1266 = load i64, ptr %110, align 8, !tbaa !56
  %1267 = sub i64 %1266, %611
  store i64 %553, ptr %552, align 8, !tbaa !49
  %1268 = getelementptr inbounds nuw i8, ptr %552, i64 8
  store i64 %610, ptr %1268, align 8, !tbaa !49
  %1269 = getelementptr inbounds nuw i8, ptr %552, i64 16
  store i64 %1265, ptr %1269, align 8, !tbaa !49
  %1270 = getelementptr inbounds nuw i8, ptr %552, i64 24
  store i64 %1267, ptr %1270, align 8, !tbaa !49
  %1271 = load i64, ptr %3, align 8, !tbaa !49
  %1272 = icmp sgt i64 %1271, 0
  br i1 %1272, label %1273, label %1275

1273:                                             ; preds = %1264
  %1274 = load ptr, ptr %36, align 8, !tbaa !51
  br label %1279

1275:                                             ; preds = %1279, %1264
  %1276 = icmp sgt i64 %860, 0
  br i1 %1276, label %1277, label %1287

1277:                                             ; preds = %1275
  %1278 = load ptr, ptr %36, align 8, !tbaa !51
  br label %1288

1279:                                             ; preds = %1279, %1273
  %1280 = phi i64 [ 0, %1273 ], [ %1285, %1279 ]
  %1281 = getelementptr inbounds nuw i32, ptr %2, i64 %1280
  %1282 = load i32, ptr %1281, align 4, !tbaa !4
  %1283 = sext i32 %1282 to i64
  %1284 = getelementptr inbounds i32, ptr %1274, i64 %1283
  store i32 0, ptr %1284, align 4, !tbaa !4
  %1285 = add nuw nsw i64 %1280, 1
  %1286 = icmp eq i64 %1285, %1271
  br i1 %1286, label %1275, label %1279, !llvm.loop !136

1287:                                             ; preds = %1288, %1275
  store i64 %860, ptr %3, align 8, !tbaa !49
  br label %1297

1288:                                             ; preds = %1288, %1277
  %1289 = phi i64 [ 0, %1277 ], [ %1295, %1288 ]
  %1290 = getelementptr inbounds nuw i32, ptr %859, i64 %1289
  %1291 = load i32, ptr %1290, align 4, !tbaa !4
  %1292 = getelementptr inbounds nuw i32, ptr %2, i64 %1289
  store i32 %1291, ptr %1292, align 4, !tbaa !4
  %1293 = sext i32 %1291 to i64
  %1294 = getelementptr inbounds i32, ptr %1278, i64 %1293
  store i32 1, ptr %1294, align 4, !tbaa !4
  %1295 = add nuw nsw i64 %1289, 1
  %1296 = icmp eq i64 %1295, %860
  br i1 %1296, label %1287, label %1288, !llvm.loop !137

1297:                                             ; preds = %1287, %1255, %516, %173
  %1298 = phi i64 [ %137, %516 ], [ %137, %1255 ], [ %861, %1287 ], [ %137, %173 ]
  %1299 = add nuw nsw i64 %138, 1
  %1300 = load i64, ptr %1, align 8, !tbaa !53
  %1301 = icmp slt i64 %1299, %1300
  br i1 %1301, label %136, label %145, !llvm.loop !138
}

; Function Attrs: nocallback nofree nounwind willreturn memory(argmem: write)
declare void @llvm.memset.p0.i64(ptr writeonly captures(none), i8, i64, i1 immarg) #3

; Function Attrs: nofree norecurse nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable
define internal fastcc i64 @keep(ptr noundef nonnull captures(none) %0, ptr noundef readonly captures(none) %1, i64 noundef %2, ptr noundef writeonly captures(none) %3) unnamed_addr #4 {
  %5 = load ptr, ptr %0, align 8, !tbaa !41
  %6 = getelementptr inbounds nuw i8, ptr %0, i64 200
  %7 = load i32, ptr %6, align 8, !tbaa !66
  %8 = add nsw i32 %7, 1
  store i32 %8, ptr %6, align 8, !tbaa !66
  %9 = icmp sgt i64 %2, 0
  br i1 %9, label %10, label %15

10:                                               ; preds = %4
  %11 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %12 = load ptr, ptr %11, align 8, !tbaa !96
  %13 = getelementptr inbounds nuw i8, ptr %5, i64 224
  %14 = getelementptr inbounds nuw i8, ptr %0, i64 80
  br label %25

15:                                               ; preds = %45, %4
  %16 = phi i64 [ 0, %4 ], [ %46, %45 ]
  %17 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %18 = load i64, ptr %17, align 8, !tbaa !67
  %19 = icmp sgt i64 %18, 0
  br i1 %19, label %20, label %49

20:                                               ; preds = %15
  %21 = getelementptr inbounds nuw i8, ptr %5, i64 200
  %22 = load ptr, ptr %21, align 8, !tbaa !68
  %23 = getelementptr inbounds nuw i8, ptr %0, i64 88
  %24 = load ptr, ptr %23, align 8, !tbaa !139
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
  %42 = load ptr, ptr %14, align 8, !tbaa !125
  %43 = add nsw i64 %26, 1
  %44 = getelementptr inbounds i32, ptr %42, i64 %26
  store i32 %29, ptr %44, align 4, !tbaa !4
  br label %45

45:                                               ; preds = %41, %34, %25
  %46 = phi i64 [ %43, %41 ], [ %26, %34 ], [ %26, %25 ]
  %47 = add nuw nsw i64 %27, 1
  %48 = icmp eq i64 %47, %2
  br i1 %48, label %15, label %25, !llvm.loop !140

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
  br i1 %73, label %49, label %67, !llvm.loop !141

74:                                               ; preds = %208
  br i1 %173, label %75, label %165

75:                                               ; preds = %157, %74
  %76 = phi i64 [ %160, %157 ], [ %209, %74 ]
  %77 = phi i64 [ %161, %157 ], [ %167, %74 ]
  %78 = load ptr, ptr %60, align 8, !tbaa !125
  %79 = add nsw i64 %76, -1
  %80 = getelementptr inbounds i32, ptr %78, i64 %79
  %81 = load i32, ptr %80, align 4, !tbaa !4
  %82 = load ptr, ptr %61, align 8, !tbaa !142
  %83 = sext i32 %81 to i64
  %84 = getelementptr inbounds i32, ptr %82, i64 %83
  %85 = load i32, ptr %84, align 4, !tbaa !4
  %86 = icmp eq i32 %85, %8
  br i1 %86, label %151, label %87, !llvm.loop !143

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
  %99 = load ptr, ptr %56, align 8, !tbaa !144
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
  br i1 %108, label %109, label %151, !llvm.loop !143

109:                                              ; preds = %102
  %110 = load ptr, ptr %56, align 8, !tbaa !144
  %111 = load ptr, ptr %65, align 8, !tbaa !23
  %112 = sext i32 %105 to i64
  br label %123, !llvm.loop !143

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
  br i1 %122, label %113, label %102, !llvm.loop !145

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
  %134 = load ptr, ptr %66, align 8, !tbaa !69
  %135 = getelementptr inbounds i32, ptr %134, i64 %129
  %136 = load i32, ptr %135, align 4, !tbaa !4
  %137 = icmp eq i32 %136, %8
  br i1 %137, label %144, label %138

138:                                              ; preds = %133
  store i32 %8, ptr %135, align 4, !tbaa !4
  %139 = load i32, ptr %127, align 4, !tbaa !4
  %140 = load ptr, ptr %55, align 8, !tbaa !139
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
  br i1 %149, label %123, label %150, !llvm.loop !146

150:                                              ; preds = %144
  br label %151, !llvm.loop !143

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
  %163 = load ptr, ptr %55, align 8, !tbaa !139
  %164 = load ptr, ptr %56, align 8, !tbaa !144
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
  br i1 %173, label %174, label %208, !llvm.loop !143

174:                                              ; preds = %165
  %175 = load ptr, ptr %57, align 8, !tbaa !77
  %176 = getelementptr inbounds i32, ptr %175, i64 %170
  %177 = load i32, ptr %176, align 4, !tbaa !4
  %178 = getelementptr i8, ptr %176, i64 4
  %179 = load i32, ptr %178, align 4, !tbaa !4
  %180 = icmp slt i32 %177, %179
  br i1 %180, label %181, label %199

181:                                              ; preds = %174
  %182 = load ptr, ptr %58, align 8, !tbaa !96
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
  br i1 %196, label %217, label %185, !llvm.loop !147

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
  %207 = load ptr, ptr %60, align 8, !tbaa !125
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
  %7 = load ptr, ptr %6, align 8, !tbaa !148
  %8 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %9 = load ptr, ptr %8, align 8, !tbaa !98
  %10 = getelementptr inbounds nuw i8, ptr %0, i64 120
  %11 = load ptr, ptr %10, align 8, !tbaa !149
  br label %22

12:                                               ; preds = %22
  %13 = getelementptr inbounds nuw i8, ptr %3, i64 104
  %14 = load ptr, ptr %13, align 8, !tbaa !21
  %15 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %16 = load ptr, ptr %15, align 8, !tbaa !98
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
  br i1 %32, label %12, label %22, !llvm.loop !150

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
  br i1 %53, label %33, label %37, !llvm.loop !151

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
  %66 = load ptr, ptr %19, align 8, !tbaa !96
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
  br i1 %79, label %54, label %51, !llvm.loop !152

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
  %90 = load ptr, ptr %21, align 8, !tbaa !148
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
  br i1 %103, label %80, label %69, !llvm.loop !153
}

; Function Attrs: nofree nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable
define internal fastcc i32 @worth(ptr noundef nonnull readonly captures(none) %0, i32 noundef %1, i32 noundef %2) unnamed_addr #2 {
  %4 = load ptr, ptr %0, align 8, !tbaa !41
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 120
  %6 = load ptr, ptr %5, align 8, !tbaa !149
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
  %36 = load ptr, ptr %5, align 8, !tbaa !149
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
  br i1 %73, label %41, label %35, !llvm.loop !154

74:                                               ; preds = %97, %57
  %75 = phi ptr [ %43, %57 ], [ %98, %97 ]
  %76 = phi ptr [ %44, %57 ], [ %99, %97 ]
  %77 = phi i64 [ %58, %57 ], [ %101, %97 ]
  %78 = phi i32 [ %48, %57 ], [ %100, %97 ]
  %79 = load ptr, ptr %28, align 8, !tbaa !96
  %80 = load ptr, ptr %29, align 8, !tbaa !76
  %81 = getelementptr inbounds i32, ptr %80, i64 %77
  %82 = load i32, ptr %81, align 4, !tbaa !4
  %83 = sext i32 %82 to i64
  %84 = getelementptr inbounds i32, ptr %79, i64 %83
  %85 = load i32, ptr %84, align 4, !tbaa !4
  %86 = icmp eq i32 %85, 0
  br i1 %86, label %97, label %87

87:                                               ; preds = %74
  %88 = load ptr, ptr %30, align 8, !tbaa !148
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
  br i1 %109, label %74, label %59, !llvm.loop !155

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
!65 = distinct !{!65, !19, !20}
!66 = !{!42, !5, i64 200}
!67 = !{!9, !10, i64 32}
!68 = !{!9, !11, i64 200}
!69 = !{!42, !11, i64 32}
!70 = !{!9, !11, i64 192}
!71 = !{!9, !10, i64 24}
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
!89 = !{!42, !11, i64 56}
!90 = distinct !{!90, !19, !20}
!91 = !{!92, !10, i64 0}
!92 = !{!"", !10, i64 0, !10, i64 8, !10, i64 16, !10, i64 24}
!93 = !{!92, !10, i64 16}
!94 = !{!92, !10, i64 8}
!95 = !{!92, !10, i64 24}
!96 = !{!42, !11, i64 8}
!97 = distinct !{!97, !19, !20}
!98 = !{!42, !11, i64 40}
!99 = distinct !{!99, !19, !20}
!100 = distinct !{!100, !19, !20}
!101 = !{!9, !11, i64 152}
!102 = !{!9, !11, i64 160}
!103 = distinct !{!103, !19, !20}
!104 = distinct !{!104, !19, !20}
!105 = !{!42, !11, i64 48}
!106 = distinct !{!106, !19, !20}
!107 = distinct !{!107, !19, !20}
!108 = distinct !{!108, !19, !20}
!109 = !{!42, !11, i64 128}
!110 = !{!42, !11, i64 136}
!111 = !{!42, !11, i64 160}
!112 = distinct !{!112, !19, !20}
!113 = !{!9, !11, i64 256}
!114 = distinct !{!114, !19, !20}
!115 = distinct !{!115, !19, !20}
!116 = !{!9, !11, i64 240}
!117 = !{!9, !11, i64 248}
!118 = distinct !{!118, !19, !20}
!119 = distinct !{!119, !19, !20}
!120 = distinct !{!120, !19, !20}
!121 = !{!9, !11, i64 264}
!122 = distinct !{!122, !19, !20}
!123 = distinct !{!123, !19, !20}
!124 = distinct !{!124, !19, !20}
!125 = !{!42, !11, i64 80}
!126 = distinct !{!126, !19, !20}
!127 = distinct !{!127, !19, !20}
!128 = distinct !{!128, !19, !20}
!129 = !{!42, !11, i64 144}
!130 = distinct !{!130, !19, !20}
!131 = distinct !{!131, !19, !20}
!132 = !{!9, !11, i64 96}
!133 = distinct !{!133, !19, !20}
!134 = distinct !{!134, !19, !20}
!135 = distinct !{!135, !19, !20}
!136 = distinct !{!136, !19, !20}
!137 = distinct !{!137, !19, !20}
!138 = distinct !{!138, !19, !20}
!139 = !{!42, !11, i64 88}
!140 = distinct !{!140, !19, !20}
!141 = distinct !{!141, !19, !20}
!142 = !{!42, !11, i64 16}
!143 = distinct !{!143, !19, !20}
!144 = !{!42, !11, i64 24}
!145 = distinct !{!145, !19, !20}
!146 = distinct !{!146, !19, !20}
!147 = distinct !{!147, !19, !20}
!148 = !{!42, !11, i64 112}
!149 = !{!42, !11, i64 120}
!150 = distinct !{!150, !19, !20}
!151 = distinct !{!151, !19, !20}
!152 = distinct !{!152, !19, !20}
!153 = distinct !{!153, !19, !20}
!154 = distinct !{!154, !19, !20}
!155 = distinct !{!155, !19, !20}
