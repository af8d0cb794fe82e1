; ModuleID = '<string>'
source_filename = "<string>"

%struct.Both = type { <32 x float>, <32 x float> }

; Function Attrs: nofree norecurse nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable
define dso_local void @scores(ptr noundef readonly captures(none) %0) local_unnamed_addr #0 {
  %2 = getelementptr inbounds nuw i8, ptr %0, i64 200
  %3 = load ptr, ptr %2, align 8, !tbaa !8
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 208
  %5 = load ptr, ptr %4, align 8, !tbaa !14
  %6 = getelementptr inbounds nuw i8, ptr %0, i64 216
  %7 = load ptr, ptr %6, align 8, !tbaa !15
  %8 = getelementptr inbounds nuw i8, ptr %0, i64 224
  %9 = load ptr, ptr %8, align 8, !tbaa !16
  %10 = load i64, ptr %0, align 8, !tbaa !17
  %11 = icmp sgt i64 %10, 0
  br i1 %11, label %12, label %15

12:                                               ; preds = %1
  %13 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %14 = getelementptr inbounds nuw i8, ptr %0, i64 88
  br label %22

15:                                               ; preds = %41, %1
  %16 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %17 = load i64, ptr %16, align 8, !tbaa !18
  %18 = icmp sgt i64 %17, 0
  br i1 %18, label %19, label %78

19:                                               ; preds = %15
  %20 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %21 = getelementptr inbounds nuw i8, ptr %0, i64 96
  br label %95

22:                                               ; preds = %41, %12
  %23 = phi i64 [ 0, %12 ], [ %75, %41 ]
  %24 = load ptr, ptr %13, align 8, !tbaa !19
  %25 = mul nuw nsw i64 %23, 44
  %26 = getelementptr inbounds nuw i8, ptr %24, i64 %25
  %27 = load ptr, ptr %14, align 8, !tbaa !20
  br label %28

28:                                               ; preds = %28, %22
  %29 = phi i64 [ 0, %22 ], [ %39, %28 ]
  %30 = phi <32 x float> [ zeroinitializer, %22 ], [ %38, %28 ]
  %31 = getelementptr inbounds nuw float, ptr %26, i64 %29
  %32 = load float, ptr %31, align 4, !tbaa !21
  %33 = insertelement <32 x float> poison, float %32, i64 0
  %34 = shufflevector <32 x float> %33, <32 x float> poison, <32 x i32> zeroinitializer
  %35 = getelementptr inbounds nuw <32 x float>, ptr %27, i64 %29
  %36 = load <32 x float>, ptr %35, align 4, !tbaa !23
  %37 = fmul <32 x float> %36, %34
  %38 = fadd <32 x float> %30, %37
  %39 = add nuw nsw i64 %29, 1
  %40 = icmp eq i64 %39, 11
  br i1 %40, label %41, label %28, !llvm.loop !24

41:                                               ; preds = %28
  %42 = fadd <32 x float> %38, %38
  %43 = tail call <32 x float> @llvm.minnum.v32f32(<32 x float> %42, <32 x float> splat (float 8.700000e+01))
  %44 = tail call <32 x float> @llvm.maxnum.v32f32(<32 x float> %43, <32 x float> splat (float -8.700000e+01))
  %45 = fmul <32 x float> %44, splat (float 0x3FF7154760000000)
  %46 = fadd <32 x float> %45, splat (float 0x4168000000000000)
  %47 = bitcast <32 x float> %46 to <32 x i32>
  %48 = shl <32 x i32> %47, splat (i32 23)
  %49 = fadd <32 x float> %46, splat (float 0xC168000000000000)
  %50 = fmul <32 x float> %49, splat (float 0x3FE6300000000000)
  %51 = fsub <32 x float> %44, %50
  %52 = fmul <32 x float> %49, splat (float 0x3F2BD01060000000)
  %53 = fadd <32 x float> %52, %51
  %54 = fmul <32 x float> %53, splat (float 0x3F2A0D2CE0000000)
  %55 = fadd <32 x float> %54, splat (float 0x3F56E879C0000000)
  %56 = fmul <32 x float> %53, %55
  %57 = fadd <32 x float> %56, splat (float 0x3F81112100000000)
  %58 = fmul <32 x float> %53, %57
  %59 = fadd <32 x float> %58, splat (float 0x3FA5553820000000)
  %60 = fmul <32 x float> %53, %59
  %61 = fadd <32 x float> %60, splat (float 0x3FC5555540000000)
  %62 = fmul <32 x float> %53, %61
  %63 = fadd <32 x float> %62, splat (float 5.000000e-01)
  %64 = fmul <32 x float> %53, %63
  %65 = fmul <32 x float> %53, %64
  %66 = fadd <32 x float> %53, %65
  %67 = fadd <32 x float> %66, splat (float 1.000000e+00)
  %68 = bitcast <32 x float> %67 to <32 x i32>
  %69 = add <32 x i32> %48, %68
  %70 = bitcast <32 x i32> %69 to <32 x float>
  %71 = fadd <32 x float> %70, splat (float 1.000000e+00)
  %72 = fdiv <32 x float> splat (float 2.000000e+00), %71
  %73 = fsub <32 x float> splat (float 1.000000e+00), %72
  %74 = getelementptr inbounds nuw <32 x float>, ptr %3, i64 %23
  store <32 x float> %73, ptr %74, align 4, !tbaa !23
  %75 = add nuw nsw i64 %23, 1
  %76 = load i64, ptr %0, align 8, !tbaa !17
  %77 = icmp slt i64 %75, %76
  br i1 %77, label %22, label %15, !llvm.loop !27

78:                                               ; preds = %114, %15
  %79 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %80 = getelementptr inbounds nuw i8, ptr %0, i64 56
  %81 = getelementptr inbounds nuw i8, ptr %0, i64 48
  %82 = getelementptr inbounds nuw i8, ptr %0, i64 232
  %83 = getelementptr inbounds nuw i8, ptr %0, i64 112
  %84 = getelementptr inbounds nuw i8, ptr %0, i64 128
  %85 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %86 = getelementptr inbounds nuw i8, ptr %0, i64 104
  %87 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %88 = getelementptr inbounds nuw i8, ptr %0, i64 120
  %89 = getelementptr inbounds nuw i8, ptr %0, i64 160
  %90 = getelementptr inbounds nuw i8, ptr %0, i64 64
  %91 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %92 = getelementptr inbounds nuw i8, ptr %0, i64 136
  %93 = getelementptr inbounds nuw i8, ptr %0, i64 144
  %94 = getelementptr inbounds nuw i8, ptr %0, i64 152
  br label %170

95:                                               ; preds = %114, %19
  %96 = phi i64 [ 0, %19 ], [ %148, %114 ]
  %97 = load ptr, ptr %20, align 8, !tbaa !28
  %98 = mul nuw nsw i64 %96, 96
  %99 = getelementptr inbounds nuw i8, ptr %97, i64 %98
  %100 = load ptr, ptr %21, align 8, !tbaa !29
  br label %101

101:                                              ; preds = %101, %95
  %102 = phi i64 [ 0, %95 ], [ %112, %101 ]
  %103 = phi <32 x float> [ zeroinitializer, %95 ], [ %111, %101 ]
  %104 = getelementptr inbounds nuw float, ptr %99, i64 %102
  %105 = load float, ptr %104, align 4, !tbaa !21
  %106 = insertelement <32 x float> poison, float %105, i64 0
  %107 = shufflevector <32 x float> %106, <32 x float> poison, <32 x i32> zeroinitializer
  %108 = getelementptr inbounds nuw <32 x float>, ptr %100, i64 %102
  %109 = load <32 x float>, ptr %108, align 4, !tbaa !23
  %110 = fmul <32 x float> %109, %107
  %111 = fadd <32 x float> %103, %110
  %112 = add nuw nsw i64 %102, 1
  %113 = icmp eq i64 %112, 24
  br i1 %113, label %114, label %101, !llvm.loop !24

114:                                              ; preds = %101
  %115 = fadd <32 x float> %111, %111
  %116 = tail call <32 x float> @llvm.minnum.v32f32(<32 x float> %115, <32 x float> splat (float 8.700000e+01))
  %117 = tail call <32 x float> @llvm.maxnum.v32f32(<32 x float> %116, <32 x float> splat (float -8.700000e+01))
  %118 = fmul <32 x float> %117, splat (float 0x3FF7154760000000)
  %119 = fadd <32 x float> %118, splat (float 0x4168000000000000)
  %120 = bitcast <32 x float> %119 to <32 x i32>
  %121 = shl <32 x i32> %120, splat (i32 23)
  %122 = fadd <32 x float> %119, splat (float 0xC168000000000000)
  %123 = fmul <32 x float> %122, splat (float 0x3FE6300000000000)
  %124 = fsub <32 x float> %117, %123
  %125 = fmul <32 x float> %122, splat (float 0x3F2BD01060000000)
  %126 = fadd <32 x float> %125, %124
  %127 = fmul <32 x float> %126, splat (float 0x3F2A0D2CE0000000)
  %128 = fadd <32 x float> %127, splat (float 0x3F56E879C0000000)
  %129 = fmul <32 x float> %126, %128
  %130 = fadd <32 x float> %129, splat (float 0x3F81112100000000)
  %131 = fmul <32 x float> %126, %130
  %132 = fadd <32 x float> %131, splat (float 0x3FA5553820000000)
  %133 = fmul <32 x float> %126, %132
  %134 = fadd <32 x float> %133, splat (float 0x3FC5555540000000)
  %135 = fmul <32 x float> %126, %134
  %136 = fadd <32 x float> %135, splat (float 5.000000e-01)
  %137 = fmul <32 x float> %126, %136
  %138 = fmul <32 x float> %126, %137
  %139 = fadd <32 x float> %126, %138
  %140 = fadd <32 x float> %139, splat (float 1.000000e+00)
  %141 = bitcast <32 x float> %140 to <32 x i32>
  %142 = add <32 x i32> %121, %141
  %143 = bitcast <32 x i32> %142 to <32 x float>
  %144 = fadd <32 x float> %143, splat (float 1.000000e+00)
  %145 = fdiv <32 x float> splat (float 2.000000e+00), %144
  %146 = fsub <32 x float> splat (float 1.000000e+00), %145
  %147 = getelementptr inbounds nuw <32 x float>, ptr %5, i64 %96
  store <32 x float> %146, ptr %147, align 4, !tbaa !23
  %148 = add nuw nsw i64 %96, 1
  %149 = load i64, ptr %16, align 8, !tbaa !18
  %150 = icmp slt i64 %148, %149
  br i1 %150, label %95, label %78, !llvm.loop !30

151:                                              ; preds = %426
  %152 = load i64, ptr %16, align 8, !tbaa !18
  %153 = icmp sgt i64 %152, 0
  br i1 %153, label %154, label %586

154:                                              ; preds = %151
  %155 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %156 = load ptr, ptr %155, align 8, !tbaa !28
  %157 = getelementptr inbounds nuw i8, ptr %0, i64 176
  %158 = load ptr, ptr %157, align 8, !tbaa !31
  %159 = getelementptr inbounds nuw i8, ptr %0, i64 168
  %160 = load ptr, ptr %159, align 8, !tbaa !32
  %161 = load ptr, ptr %85, align 8, !tbaa !33
  %162 = getelementptr inbounds nuw i8, ptr %160, i64 4096
  %163 = getelementptr inbounds nuw i8, ptr %160, i64 8192
  %164 = getelementptr inbounds nuw i8, ptr %0, i64 192
  %165 = load ptr, ptr %164, align 8, !tbaa !34
  %166 = getelementptr inbounds nuw i8, ptr %0, i64 184
  %167 = load ptr, ptr %166, align 8, !tbaa !35
  %168 = getelementptr inbounds nuw i8, ptr %0, i64 240
  %169 = load ptr, ptr %168, align 8, !tbaa !36
  br label %587

170:                                              ; preds = %426, %78
  %171 = phi i32 [ 0, %78 ], [ %427, %426 ]
  %172 = load i64, ptr %16, align 8, !tbaa !18
  %173 = icmp sgt i64 %172, 0
  br i1 %173, label %174, label %176

174:                                              ; preds = %170
  %175 = shl nuw i64 %172, 7
  tail call void @llvm.memset.p0.i64(ptr align 4 %7, i8 0, i64 %175, i1 false), !tbaa !23
  br label %176

176:                                              ; preds = %174, %170
  %177 = load i64, ptr %79, align 8, !tbaa !37
  %178 = icmp sgt i64 %177, 0
  br i1 %178, label %182, label %179

179:                                              ; preds = %182, %176
  %180 = load i64, ptr %0, align 8, !tbaa !17
  %181 = icmp sgt i64 %180, 0
  br i1 %181, label %202, label %198

182:                                              ; preds = %182, %176
  %183 = phi i64 [ %195, %182 ], [ 0, %176 ]
  %184 = load ptr, ptr %80, align 8, !tbaa !38
  %185 = getelementptr inbounds nuw i64, ptr %184, i64 %183
  %186 = load i64, ptr %185, align 8, !tbaa !39
  %187 = getelementptr inbounds <32 x float>, ptr %3, i64 %186
  %188 = load <32 x float>, ptr %187, align 4, !tbaa !23
  %189 = load ptr, ptr %81, align 8, !tbaa !40
  %190 = getelementptr inbounds nuw i64, ptr %189, i64 %183
  %191 = load i64, ptr %190, align 8, !tbaa !39
  %192 = getelementptr inbounds <32 x float>, ptr %7, i64 %191
  %193 = load <32 x float>, ptr %192, align 4, !tbaa !23
  %194 = fadd <32 x float> %188, %193
  store <32 x float> %194, ptr %192, align 4, !tbaa !23
  %195 = add nuw nsw i64 %183, 1
  %196 = load i64, ptr %79, align 8, !tbaa !37
  %197 = icmp slt i64 %195, %196
  br i1 %197, label %182, label %179, !llvm.loop !41

198:                                              ; preds = %235, %179
  %199 = phi i64 [ %180, %179 ], [ %237, %235 ]
  %200 = load i64, ptr %16, align 8, !tbaa !18
  %201 = icmp sgt i64 %200, 0
  br i1 %201, label %253, label %241

202:                                              ; preds = %235, %179
  %203 = phi i64 [ %236, %235 ], [ 0, %179 ]
  %204 = load ptr, ptr %82, align 8, !tbaa !42
  %205 = getelementptr inbounds nuw %struct.Both, ptr %204, i64 %203
  tail call void @llvm.memset.p0.i64(ptr noundef nonnull align 4 dereferenceable(256) %205, i8 0, i64 256, i1 false)
  %206 = getelementptr inbounds nuw <32 x float>, ptr %3, i64 %203
  %207 = load ptr, ptr %83, align 8, !tbaa !43
  %208 = load ptr, ptr %82, align 8, !tbaa !42
  %209 = getelementptr inbounds nuw %struct.Both, ptr %208, i64 %203
  %210 = getelementptr inbounds nuw i8, ptr %209, i64 128
  %211 = load <32 x float>, ptr %209, align 4, !tbaa !23
  %212 = load <32 x float>, ptr %210, align 4, !tbaa !23
  br label %213

213:                                              ; preds = %213, %202
  %214 = phi i64 [ 0, %202 ], [ %233, %213 ]
  %215 = phi <32 x float> [ %211, %202 ], [ %225, %213 ]
  %216 = phi <32 x float> [ %212, %202 ], [ %232, %213 ]
  %217 = getelementptr inbounds nuw float, ptr %206, i64 %214
  %218 = load float, ptr %217, align 4, !tbaa !21
  %219 = insertelement <32 x float> poison, float %218, i64 0
  %220 = shufflevector <32 x float> %219, <32 x float> poison, <32 x i32> zeroinitializer
  %221 = shl nuw nsw i64 %214, 8
  %222 = getelementptr inbounds nuw i8, ptr %207, i64 %221
  %223 = load <32 x float>, ptr %222, align 4, !tbaa !23
  %224 = fmul <32 x float> %223, %220
  %225 = fadd <32 x float> %215, %224
  store <32 x float> %225, ptr %209, align 4, !tbaa !23
  %226 = load float, ptr %217, align 4, !tbaa !21
  %227 = insertelement <32 x float> poison, float %226, i64 0
  %228 = shufflevector <32 x float> %227, <32 x float> poison, <32 x i32> zeroinitializer
  %229 = getelementptr inbounds nuw i8, ptr %222, i64 128
  %230 = load <32 x float>, ptr %229, align 4, !tbaa !23
  %231 = fmul <32 x float> %230, %228
  %232 = fadd <32 x float> %216, %231
  store <32 x float> %232, ptr %210, align 4, !tbaa !23
  %233 = add nuw nsw i64 %214, 1
  %234 = icmp eq i64 %233, 32
  br i1 %234, label %235, label %213, !llvm.loop !44

235:                                              ; preds = %213
  %236 = add nuw nsw i64 %203, 1
  %237 = load i64, ptr %0, align 8, !tbaa !17
  %238 = icmp slt i64 %236, %237
  br i1 %238, label %202, label %198, !llvm.loop !45

239:                                              ; preds = %319
  %240 = load i64, ptr %0, align 8, !tbaa !17
  br label %241

241:                                              ; preds = %239, %198
  %242 = phi i64 [ %240, %239 ], [ %199, %198 ]
  %243 = icmp sgt i64 %242, 0
  br i1 %243, label %244, label %250

244:                                              ; preds = %241
  %245 = shl nuw i64 %242, 7
  tail call void @llvm.memset.p0.i64(ptr align 4 %7, i8 0, i64 %245, i1 false), !tbaa !23
  %246 = load i64, ptr %0, align 8, !tbaa !17
  %247 = icmp sgt i64 %246, 0
  br i1 %247, label %248, label %250

248:                                              ; preds = %244
  %249 = shl nuw i64 %246, 7
  tail call void @llvm.memset.p0.i64(ptr align 4 %9, i8 0, i64 %249, i1 false), !tbaa !23
  br label %250

250:                                              ; preds = %248, %244, %241
  %251 = load i64, ptr %16, align 8, !tbaa !18
  %252 = icmp sgt i64 %251, 0
  br i1 %252, label %394, label %391

253:                                              ; preds = %319, %198
  %254 = phi i64 [ %388, %319 ], [ 0, %198 ]
  %255 = load ptr, ptr %84, align 8, !tbaa !46
  %256 = load <32 x float>, ptr %255, align 4, !tbaa !23
  %257 = getelementptr inbounds nuw i8, ptr %255, i64 128
  %258 = load <32 x float>, ptr %257, align 4, !tbaa !23
  %259 = load ptr, ptr %82, align 8, !tbaa !42
  %260 = load ptr, ptr %85, align 8, !tbaa !33
  %261 = getelementptr inbounds nuw i64, ptr %260, i64 %254
  %262 = load i64, ptr %261, align 8, !tbaa !39
  %263 = getelementptr inbounds %struct.Both, ptr %259, i64 %262
  %264 = load <32 x float>, ptr %263, align 4, !tbaa !23
  %265 = fadd <32 x float> %256, %264
  %266 = getelementptr inbounds nuw i8, ptr %263, i64 128
  %267 = load <32 x float>, ptr %266, align 4, !tbaa !23
  %268 = fadd <32 x float> %258, %267
  %269 = getelementptr inbounds nuw <32 x float>, ptr %5, i64 %254
  %270 = load ptr, ptr %86, align 8, !tbaa !47
  br label %271

271:                                              ; preds = %271, %253
  %272 = phi i64 [ 0, %253 ], [ %288, %271 ]
  %273 = phi <32 x float> [ %265, %253 ], [ %283, %271 ]
  %274 = phi <32 x float> [ %268, %253 ], [ %287, %271 ]
  %275 = getelementptr inbounds nuw float, ptr %269, i64 %272
  %276 = load float, ptr %275, align 4, !tbaa !21
  %277 = insertelement <32 x float> poison, float %276, i64 0
  %278 = shufflevector <32 x float> %277, <32 x float> poison, <32 x i32> zeroinitializer
  %279 = shl nuw nsw i64 %272, 8
  %280 = getelementptr inbounds nuw i8, ptr %270, i64 %279
  %281 = load <32 x float>, ptr %280, align 4, !tbaa !23
  %282 = fmul <32 x float> %281, %278
  %283 = fadd <32 x float> %273, %282
  %284 = getelementptr inbounds nuw i8, ptr %280, i64 128
  %285 = load <32 x float>, ptr %284, align 4, !tbaa !23
  %286 = fmul <32 x float> %278, %285
  %287 = fadd <32 x float> %274, %286
  %288 = add nuw nsw i64 %272, 1
  %289 = icmp eq i64 %288, 32
  br i1 %289, label %290, label %271, !llvm.loop !44

290:                                              ; preds = %271
  %291 = load ptr, ptr %87, align 8, !tbaa !48
  %292 = getelementptr inbounds nuw float, ptr %291, i64 %254
  %293 = load float, ptr %292, align 4, !tbaa !21
  %294 = insertelement <32 x float> poison, float %293, i64 0
  %295 = shufflevector <32 x float> %294, <32 x float> poison, <32 x i32> zeroinitializer
  %296 = getelementptr inbounds nuw <32 x float>, ptr %7, i64 %254
  %297 = load <32 x float>, ptr %296, align 4, !tbaa !23
  %298 = fdiv <32 x float> %297, %295
  store <32 x float> %298, ptr %296, align 4, !tbaa !23
  %299 = load ptr, ptr %88, align 8, !tbaa !49
  br label %300

300:                                              ; preds = %300, %290
  %301 = phi i64 [ 0, %290 ], [ %317, %300 ]
  %302 = phi <32 x float> [ %283, %290 ], [ %312, %300 ]
  %303 = phi <32 x float> [ %287, %290 ], [ %316, %300 ]
  %304 = getelementptr inbounds nuw float, ptr %296, i64 %301
  %305 = load float, ptr %304, align 4, !tbaa !21
  %306 = insertelement <32 x float> poison, float %305, i64 0
  %307 = shufflevector <32 x float> %306, <32 x float> poison, <32 x i32> zeroinitializer
  %308 = shl nuw nsw i64 %301, 8
  %309 = getelementptr inbounds nuw i8, ptr %299, i64 %308
  %310 = load <32 x float>, ptr %309, align 4, !tbaa !23
  %311 = fmul <32 x float> %310, %307
  %312 = fadd <32 x float> %302, %311
  %313 = getelementptr inbounds nuw i8, ptr %309, i64 128
  %314 = load <32 x float>, ptr %313, align 4, !tbaa !23
  %315 = fmul <32 x float> %307, %314
  %316 = fadd <32 x float> %303, %315
  %317 = add nuw nsw i64 %301, 1
  %318 = icmp eq i64 %317, 32
  br i1 %318, label %319, label %300, !llvm.loop !44

319:                                              ; preds = %300
  %320 = load <32 x float>, ptr %269, align 4, !tbaa !23
  %321 = fneg <32 x float> %312
  %322 = tail call <32 x float> @llvm.minnum.v32f32(<32 x float> %321, <32 x float> splat (float 8.700000e+01))
  %323 = tail call <32 x float> @llvm.maxnum.v32f32(<32 x float> %322, <32 x float> splat (float -8.700000e+01))
  %324 = fmul <32 x float> %323, splat (float 0x3FF7154760000000)
  %325 = fadd <32 x float> %324, splat (float 0x4168000000000000)
  %326 = bitcast <32 x float> %325 to <32 x i32>
  %327 = shl <32 x i32> %326, splat (i32 23)
  %328 = fadd <32 x float> %325, splat (float 0xC168000000000000)
  %329 = fmul <32 x float> %328, splat (float 0x3FE6300000000000)
  %330 = fsub <32 x float> %323, %329
  %331 = fmul <32 x float> %328, splat (float 0x3F2BD01060000000)
  %332 = fadd <32 x float> %331, %330
  %333 = fmul <32 x float> %332, splat (float 0x3F2A0D2CE0000000)
  %334 = fadd <32 x float> %333, splat (float 0x3F56E879C0000000)
  %335 = fmul <32 x float> %332, %334
  %336 = fadd <32 x float> %335, splat (float 0x3F81112100000000)
  %337 = fmul <32 x float> %332, %336
  %338 = fadd <32 x float> %337, splat (float 0x3FA5553820000000)
  %339 = fmul <32 x float> %332, %338
  %340 = fadd <32 x float> %339, splat (float 0x3FC5555540000000)
  %341 = fmul <32 x float> %332, %340
  %342 = fadd <32 x float> %341, splat (float 5.000000e-01)
  %343 = fmul <32 x float> %332, %342
  %344 = fmul <32 x float> %332, %343
  %345 = fadd <32 x float> %332, %344
  %346 = fadd <32 x float> %345, splat (float 1.000000e+00)
  %347 = bitcast <32 x float> %346 to <32 x i32>
  %348 = add <32 x i32> %327, %347
  %349 = bitcast <32 x i32> %348 to <32 x float>
  %350 = fadd <32 x float> %349, splat (float 1.000000e+00)
  %351 = fdiv <32 x float> splat (float 1.000000e+00), %350
  %352 = fsub <32 x float> splat (float 1.000000e+00), %351
  %353 = fmul <32 x float> %352, %320
  %354 = fadd <32 x float> %316, %316
  %355 = tail call <32 x float> @llvm.minnum.v32f32(<32 x float> %354, <32 x float> splat (float 8.700000e+01))
  %356 = tail call <32 x float> @llvm.maxnum.v32f32(<32 x float> %355, <32 x float> splat (float -8.700000e+01))
  %357 = fmul <32 x float> %356, splat (float 0x3FF7154760000000)
  %358 = fadd <32 x float> %357, splat (float 0x4168000000000000)
  %359 = bitcast <32 x float> %358 to <32 x i32>
  %360 = shl <32 x i32> %359, splat (i32 23)
  %361 = fadd <32 x float> %358, splat (float 0xC168000000000000)
  %362 = fmul <32 x float> %361, splat (float 0x3FE6300000000000)
  %363 = fsub <32 x float> %356, %362
  %364 = fmul <32 x float> %361, splat (float 0x3F2BD01060000000)
  %365 = fadd <32 x float> %364, %363
  %366 = fmul <32 x float> %365, splat (float 0x3F2A0D2CE0000000)
  %367 = fadd <32 x float> %366, splat (float 0x3F56E879C0000000)
  %368 = fmul <32 x float> %365, %367
  %369 = fadd <32 x float> %368, splat (float 0x3F81112100000000)
  %370 = fmul <32 x float> %365, %369
  %371 = fadd <32 x float> %370, splat (float 0x3FA5553820000000)
  %372 = fmul <32 x float> %365, %371
  %373 = fadd <32 x float> %372, splat (float 0x3FC5555540000000)
  %374 = fmul <32 x float> %365, %373
  %375 = fadd <32 x float> %374, splat (float 5.000000e-01)
  %376 = fmul <32 x float> %365, %375
  %377 = fmul <32 x float> %365, %376
  %378 = fadd <32 x float> %365, %377
  %379 = fadd <32 x float> %378, splat (float 1.000000e+00)
  %380 = bitcast <32 x float> %379 to <32 x i32>
  %381 = add <32 x i32> %360, %380
  %382 = bitcast <32 x i32> %381 to <32 x float>
  %383 = fadd <32 x float> %382, splat (float 1.000000e+00)
  %384 = fdiv <32 x float> splat (float 2.000000e+00), %383
  %385 = fsub <32 x float> splat (float 1.000000e+00), %384
  %386 = fmul <32 x float> %351, %385
  %387 = fadd <32 x float> %386, %353
  store <32 x float> %387, ptr %269, align 4, !tbaa !23
  %388 = add nuw nsw i64 %254, 1
  %389 = load i64, ptr %16, align 8, !tbaa !18
  %390 = icmp slt i64 %388, %389
  br i1 %390, label %253, label %239, !llvm.loop !50

391:                                              ; preds = %394, %250
  %392 = load i64, ptr %79, align 8, !tbaa !37
  %393 = icmp sgt i64 %392, 0
  br i1 %393, label %410, label %407

394:                                              ; preds = %394, %250
  %395 = phi i64 [ %404, %394 ], [ 0, %250 ]
  %396 = getelementptr inbounds nuw <32 x float>, ptr %5, i64 %395
  %397 = load <32 x float>, ptr %396, align 4, !tbaa !23
  %398 = load ptr, ptr %85, align 8, !tbaa !33
  %399 = getelementptr inbounds nuw i64, ptr %398, i64 %395
  %400 = load i64, ptr %399, align 8, !tbaa !39
  %401 = getelementptr inbounds <32 x float>, ptr %7, i64 %400
  %402 = load <32 x float>, ptr %401, align 4, !tbaa !23
  %403 = fadd <32 x float> %397, %402
  store <32 x float> %403, ptr %401, align 4, !tbaa !23
  %404 = add nuw nsw i64 %395, 1
  %405 = load i64, ptr %16, align 8, !tbaa !18
  %406 = icmp slt i64 %404, %405
  br i1 %406, label %394, label %391, !llvm.loop !51

407:                                              ; preds = %410, %391
  %408 = load i64, ptr %0, align 8, !tbaa !17
  %409 = icmp sgt i64 %408, 0
  br i1 %409, label %429, label %426

410:                                              ; preds = %410, %391
  %411 = phi i64 [ %423, %410 ], [ 0, %391 ]
  %412 = load ptr, ptr %81, align 8, !tbaa !40
  %413 = getelementptr inbounds nuw i64, ptr %412, i64 %411
  %414 = load i64, ptr %413, align 8, !tbaa !39
  %415 = getelementptr inbounds <32 x float>, ptr %5, i64 %414
  %416 = load <32 x float>, ptr %415, align 4, !tbaa !23
  %417 = load ptr, ptr %80, align 8, !tbaa !38
  %418 = getelementptr inbounds nuw i64, ptr %417, i64 %411
  %419 = load i64, ptr %418, align 8, !tbaa !39
  %420 = getelementptr inbounds <32 x float>, ptr %9, i64 %419
  %421 = load <32 x float>, ptr %420, align 4, !tbaa !23
  %422 = fadd <32 x float> %416, %421
  store <32 x float> %422, ptr %420, align 4, !tbaa !23
  %423 = add nuw nsw i64 %411, 1
  %424 = load i64, ptr %79, align 8, !tbaa !37
  %425 = icmp slt i64 %423, %424
  br i1 %425, label %410, label %407, !llvm.loop !52

426:                                              ; preds = %514, %407
  %427 = add nuw nsw i32 %171, 1
  %428 = icmp eq i32 %427, 4
  br i1 %428, label %151, label %170, !llvm.loop !53

429:                                              ; preds = %514, %407
  %430 = phi i64 [ %583, %514 ], [ 0, %407 ]
  %431 = load ptr, ptr %89, align 8, !tbaa !54
  %432 = load <32 x float>, ptr %431, align 4, !tbaa !23
  %433 = getelementptr inbounds nuw i8, ptr %431, i64 128
  %434 = load <32 x float>, ptr %433, align 4, !tbaa !23
  %435 = load ptr, ptr %90, align 8, !tbaa !55
  %436 = getelementptr inbounds nuw float, ptr %435, i64 %430
  %437 = load float, ptr %436, align 4, !tbaa !21
  %438 = insertelement <32 x float> poison, float %437, i64 0
  %439 = shufflevector <32 x float> %438, <32 x float> poison, <32 x i32> zeroinitializer
  %440 = getelementptr inbounds nuw <32 x float>, ptr %7, i64 %430
  %441 = load <32 x float>, ptr %440, align 4, !tbaa !23
  %442 = fdiv <32 x float> %441, %439
  store <32 x float> %442, ptr %440, align 4, !tbaa !23
  %443 = load ptr, ptr %91, align 8, !tbaa !56
  %444 = getelementptr inbounds nuw float, ptr %443, i64 %430
  %445 = load float, ptr %444, align 4, !tbaa !21
  %446 = insertelement <32 x float> poison, float %445, i64 0
  %447 = shufflevector <32 x float> %446, <32 x float> poison, <32 x i32> zeroinitializer
  %448 = getelementptr inbounds nuw <32 x float>, ptr %9, i64 %430
  %449 = load <32 x float>, ptr %448, align 4, !tbaa !23
  %450 = fdiv <32 x float> %449, %447
  store <32 x float> %450, ptr %448, align 4, !tbaa !23
  %451 = getelementptr inbounds nuw <32 x float>, ptr %3, i64 %430
  %452 = load ptr, ptr %92, align 8, !tbaa !57
  br label %453

453:                                              ; preds = %453, %429
  %454 = phi i64 [ 0, %429 ], [ %470, %453 ]
  %455 = phi <32 x float> [ %432, %429 ], [ %465, %453 ]
  %456 = phi <32 x float> [ %434, %429 ], [ %469, %453 ]
  %457 = getelementptr inbounds nuw float, ptr %451, i64 %454
  %458 = load float, ptr %457, align 4, !tbaa !21
  %459 = insertelement <32 x float> poison, float %458, i64 0
  %460 = shufflevector <32 x float> %459, <32 x float> poison, <32 x i32> zeroinitializer
  %461 = shl nuw nsw i64 %454, 8
  %462 = getelementptr inbounds nuw i8, ptr %452, i64 %461
  %463 = load <32 x float>, ptr %462, align 4, !tbaa !23
  %464 = fmul <32 x float> %463, %460
  %465 = fadd <32 x float> %455, %464
  %466 = getelementptr inbounds nuw i8, ptr %462, i64 128
  %467 = load <32 x float>, ptr %466, align 4, !tbaa !23
  %468 = fmul <32 x float> %460, %467
  %469 = fadd <32 x float> %456, %468
  %470 = add nuw nsw i64 %454, 1
  %471 = icmp eq i64 %470, 32
  br i1 %471, label %472, label %453, !llvm.loop !44

472:                                              ; preds = %453
  %473 = load ptr, ptr %93, align 8, !tbaa !58
  br label %474

474:                                              ; preds = %474, %472
  %475 = phi i64 [ 0, %472 ], [ %491, %474 ]
  %476 = phi <32 x float> [ %465, %472 ], [ %486, %474 ]
  %477 = phi <32 x float> [ %469, %472 ], [ %490, %474 ]
  %478 = getelementptr inbounds nuw float, ptr %440, i64 %475
  %479 = load float, ptr %478, align 4, !tbaa !21
  %480 = insertelement <32 x float> poison, float %479, i64 0
  %481 = shufflevector <32 x float> %480, <32 x float> poison, <32 x i32> zeroinitializer
  %482 = shl nuw nsw i64 %475, 8
  %483 = getelementptr inbounds nuw i8, ptr %473, i64 %482
  %484 = load <32 x float>, ptr %483, align 4, !tbaa !23
  %485 = fmul <32 x float> %484, %481
  %486 = fadd <32 x float> %476, %485
  %487 = getelementptr inbounds nuw i8, ptr %483, i64 128
  %488 = load <32 x float>, ptr %487, align 4, !tbaa !23
  %489 = fmul <32 x float> %481, %488
  %490 = fadd <32 x float> %477, %489
  %491 = add nuw nsw i64 %475, 1
  %492 = icmp eq i64 %491, 32
  br i1 %492, label %493, label %474, !llvm.loop !44

493:                                              ; preds = %474
  %494 = load ptr, ptr %94, align 8, !tbaa !59
  br label %495

495:                                              ; preds = %495, %493
  %496 = phi i64 [ 0, %493 ], [ %512, %495 ]
  %497 = phi <32 x float> [ %486, %493 ], [ %507, %495 ]
  %498 = phi <32 x float> [ %490, %493 ], [ %511, %495 ]
  %499 = getelementptr inbounds nuw float, ptr %448, i64 %496
  %500 = load float, ptr %499, align 4, !tbaa !21
  %501 = insertelement <32 x float> poison, float %500, i64 0
  %502 = shufflevector <32 x float> %501, <32 x float> poison, <32 x i32> zeroinitializer
  %503 = shl nuw nsw i64 %496, 8
  %504 = getelementptr inbounds nuw i8, ptr %494, i64 %503
  %505 = load <32 x float>, ptr %504, align 4, !tbaa !23
  %506 = fmul <32 x float> %505, %502
  %507 = fadd <32 x float> %497, %506
  %508 = getelementptr inbounds nuw i8, ptr %504, i64 128
  %509 = load <32 x float>, ptr %508, align 4, !tbaa !23
  %510 = fmul <32 x float> %502, %509
  %511 = fadd <32 x float> %498, %510
  %512 = add nuw nsw i64 %496, 1
  %513 = icmp eq i64 %512, 32
  br i1 %513, label %514, label %495, !llvm.loop !44

514:                                              ; preds = %495
  %515 = load <32 x float>, ptr %451, align 4, !tbaa !23
  %516 = fneg <32 x float> %507
  %517 = tail call <32 x float> @llvm.minnum.v32f32(<32 x float> %516, <32 x float> splat (float 8.700000e+01))
  %518 = tail call <32 x float> @llvm.maxnum.v32f32(<32 x float> %517, <32 x float> splat (float -8.700000e+01))
  %519 = fmul <32 x float> %518, splat (float 0x3FF7154760000000)
  %520 = fadd <32 x float> %519, splat (float 0x4168000000000000)
  %521 = bitcast <32 x float> %520 to <32 x i32>
  %522 = shl <32 x i32> %521, splat (i32 23)
  %523 = fadd <32 x float> %520, splat (float 0xC168000000000000)
  %524 = fmul <32 x float> %523, splat (float 0x3FE6300000000000)
  %525 = fsub <32 x float> %518, %524
  %526 = fmul <32 x float> %523, splat (float 0x3F2BD01060000000)
  %527 = fadd <32 x float> %526, %525
  %528 = fmul <32 x float> %527, splat (float 0x3F2A0D2CE0000000)
  %529 = fadd <32 x float> %528, splat (float 0x3F56E879C0000000)
  %530 = fmul <32 x float> %527, %529
  %531 = fadd <32 x float> %530, splat (float 0x3F81112100000000)
  %532 = fmul <32 x float> %527, %531
  %533 = fadd <32 x float> %532, splat (float 0x3FA5553820000000)
  %534 = fmul <32 x float> %527, %533
  %535 = fadd <32 x float> %534, splat (float 0x3FC5555540000000)
  %536 = fmul <32 x float> %527, %535
  %537 = fadd <32 x float> %536, splat (float 5.000000e-01)
  %538 = fmul <32 x float> %527, %537
  %539 = fmul <32 x float> %527, %538
  %540 = fadd <32 x float> %527, %539
  %541 = fadd <32 x float> %540, splat (float 1.000000e+00)
  %542 = bitcast <32 x float> %541 to <32 x i32>
  %543 = add <32 x i32> %522, %542
  %544 = bitcast <32 x i32> %543 to <32 x float>
  %545 = fadd <32 x float> %544, splat (float 1.000000e+00)
  %546 = fdiv <32 x float> splat (float 1.000000e+00), %545
  %547 = fsub <32 x float> splat (float 1.000000e+00), %546
  %548 = fmul <32 x float> %547, %515
  %549 = fadd <32 x float> %511, %511
  %550 = tail call <32 x float> @llvm.minnum.v32f32(<32 x float> %549, <32 x float> splat (float 8.700000e+01))
  %551 = tail call <32 x float> @llvm.maxnum.v32f32(<32 x float> %550, <32 x float> splat (float -8.700000e+01))
  %552 = fmul <32 x float> %551, splat (float 0x3FF7154760000000)
  %553 = fadd <32 x float> %552, splat (float 0x4168000000000000)
  %554 = bitcast <32 x float> %553 to <32 x i32>
  %555 = shl <32 x i32> %554, splat (i32 23)
  %556 = fadd <32 x float> %553, splat (float 0xC168000000000000)
  %557 = fmul <32 x float> %556, splat (float 0x3FE6300000000000)
  %558 = fsub <32 x float> %551, %557
  %559 = fmul <32 x float> %556, splat (float 0x3F2BD01060000000)
  %560 = fadd <32 x float> %559, %558
  %561 = fmul <32 x float> %560, splat (float 0x3F2A0D2CE0000000)
  %562 = fadd <32 x float> %561, splat (float 0x3F56E879C0000000)
  %563 = fmul <32 x float> %560, %562
  %564 = fadd <32 x float> %563, splat (float 0x3F81112100000000)
  %565 = fmul <32 x float> %560, %564
  %566 = fadd <32 x float> %565, splat (float 0x3FA5553820000000)
  %567 = fmul <32 x float> %560, %566
  %568 = fadd <32 x float> %567, splat (float 0x3FC5555540000000)
  %569 = fmul <32 x float> %560, %568
  %570 = fadd <32 x float> %569, splat (float 5.000000e-01)
  %571 = fmul <32 x float> %560, %570
  %572 = fmul <32 x float> %560, %571
  %573 = fadd <32 x float> %560, %572
  %574 = fadd <32 x float> %573, splat (float 1.000000e+00)
  %575 = bitcast <32 x float> %574 to <32 x i32>
  %576 = add <32 x i32> %555, %575
  %577 = bitcast <32 x i32> %576 to <32 x float>
  %578 = fadd <32 x float> %577, splat (float 1.000000e+00)
  %579 = fdiv <32 x float> splat (float 2.000000e+00), %578
  %580 = fsub <32 x float> splat (float 1.000000e+00), %579
  %581 = fmul <32 x float> %546, %580
  %582 = fadd <32 x float> %581, %548
  store <32 x float> %582, ptr %451, align 4, !tbaa !23
  %583 = add nuw nsw i64 %430, 1
  %584 = load i64, ptr %0, align 8, !tbaa !17
  %585 = icmp slt i64 %583, %584
  br i1 %585, label %429, label %426, !llvm.loop !60

586:                                              ; preds = %643, %151
  ret void

587:                                              ; preds = %643, %154
  %588 = phi i64 [ 0, %154 ], [ %645, %643 ]
  %589 = load <32 x float>, ptr %158, align 4, !tbaa !23
  %590 = getelementptr inbounds nuw <32 x float>, ptr %5, i64 %588
  br label %591

591:                                              ; preds = %591, %587
  %592 = phi i64 [ 0, %587 ], [ %602, %591 ]
  %593 = phi <32 x float> [ %589, %587 ], [ %601, %591 ]
  %594 = getelementptr inbounds nuw float, ptr %590, i64 %592
  %595 = load float, ptr %594, align 4, !tbaa !21
  %596 = insertelement <32 x float> poison, float %595, i64 0
  %597 = shufflevector <32 x float> %596, <32 x float> poison, <32 x i32> zeroinitializer
  %598 = getelementptr inbounds nuw <32 x float>, ptr %160, i64 %592
  %599 = load <32 x float>, ptr %598, align 4, !tbaa !23
  %600 = fmul <32 x float> %599, %597
  %601 = fadd <32 x float> %593, %600
  %602 = add nuw nsw i64 %592, 1
  %603 = icmp eq i64 %602, 32
  br i1 %603, label %604, label %591, !llvm.loop !24

604:                                              ; preds = %591
  %605 = getelementptr inbounds nuw i64, ptr %161, i64 %588
  %606 = load i64, ptr %605, align 8, !tbaa !39
  %607 = getelementptr inbounds <32 x float>, ptr %3, i64 %606
  br label %608

608:                                              ; preds = %608, %604
  %609 = phi i64 [ 0, %604 ], [ %619, %608 ]
  %610 = phi <32 x float> [ %601, %604 ], [ %618, %608 ]
  %611 = getelementptr inbounds nuw float, ptr %607, i64 %609
  %612 = load float, ptr %611, align 4, !tbaa !21
  %613 = insertelement <32 x float> poison, float %612, i64 0
  %614 = shufflevector <32 x float> %613, <32 x float> poison, <32 x i32> zeroinitializer
  %615 = getelementptr inbounds nuw <32 x float>, ptr %162, i64 %609
  %616 = load <32 x float>, ptr %615, align 4, !tbaa !23
  %617 = fmul <32 x float> %616, %614
  %618 = fadd <32 x float> %610, %617
  %619 = add nuw nsw i64 %609, 1
  %620 = icmp eq i64 %619, 32
  br i1 %620, label %621, label %608, !llvm.loop !24

621:                                              ; preds = %608
  %622 = mul nuw nsw i64 %588, 96
  %623 = getelementptr inbounds nuw i8, ptr %156, i64 %622
  br label %624

624:                                              ; preds = %624, %621
  %625 = phi i64 [ 0, %621 ], [ %635, %624 ]
  %626 = phi <32 x float> [ %618, %621 ], [ %634, %624 ]
  %627 = getelementptr inbounds nuw float, ptr %623, i64 %625
  %628 = load float, ptr %627, align 4, !tbaa !21
  %629 = insertelement <32 x float> poison, float %628, i64 0
  %630 = shufflevector <32 x float> %629, <32 x float> poison, <32 x i32> zeroinitializer
  %631 = getelementptr inbounds nuw <32 x float>, ptr %163, i64 %625
  %632 = load <32 x float>, ptr %631, align 4, !tbaa !23
  %633 = fmul <32 x float> %632, %630
  %634 = fadd <32 x float> %626, %633
  %635 = add nuw nsw i64 %625, 1
  %636 = icmp eq i64 %635, 24
  br i1 %636, label %637, label %624, !llvm.loop !24

637:                                              ; preds = %624
  %638 = tail call <32 x float> @llvm.maxnum.v32f32(<32 x float> %634, <32 x float> zeroinitializer)
  %639 = getelementptr inbounds nuw i8, ptr %623, i64 84
  %640 = load float, ptr %639, align 4, !tbaa !21
  %641 = load float, ptr %165, align 4, !tbaa !21
  %642 = fmul float %640, %641
  br label %647

643:                                              ; preds = %647
  %644 = getelementptr inbounds nuw float, ptr %169, i64 %588
  store float %655, ptr %644, align 4, !tbaa !21
  %645 = add nuw nsw i64 %588, 1
  %646 = icmp eq i64 %645, %152
  br i1 %646, label %586, label %587, !llvm.loop !61

647:                                              ; preds = %647, %637
  %648 = phi i64 [ 0, %637 ], [ %656, %647 ]
  %649 = phi float [ %642, %637 ], [ %655, %647 ]
  %650 = trunc nuw nsw i64 %648 to i32
  %651 = extractelement <32 x float> %638, i32 %650
  %652 = getelementptr inbounds nuw float, ptr %167, i64 %648
  %653 = load float, ptr %652, align 4, !tbaa !21
  %654 = fmul float %651, %653
  %655 = fadd float %649, %654
  %656 = add nuw nsw i64 %648, 1
  %657 = icmp eq i64 %656, 32
  br i1 %657, label %643, label %647, !llvm.loop !62
}

; Function Attrs: nocallback nofree nounwind willreturn memory(argmem: write)
declare void @llvm.memset.p0.i64(ptr writeonly captures(none), i8, i64, i1 immarg) #1

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare <32 x float> @llvm.maxnum.v32f32(<32 x float>, <32 x float>) #2

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare <32 x float> @llvm.minnum.v32f32(<32 x float>, <32 x float>) #2

attributes #0 = { nofree norecurse nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable "min-legal-vector-width"="1024" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }
attributes #1 = { nocallback nofree nounwind willreturn memory(argmem: write) }
attributes #2 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }

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
!8 = !{!9, !12, i64 200}
!9 = !{!"", !10, i64 0, !10, i64 8, !10, i64 16, !11, i64 24, !11, i64 32, !13, i64 40, !13, i64 48, !13, i64 56, !11, i64 64, !11, i64 72, !11, i64 80, !12, i64 88, !12, i64 96, !12, i64 104, !12, i64 112, !12, i64 120, !12, i64 128, !12, i64 136, !12, i64 144, !12, i64 152, !12, i64 160, !12, i64 168, !12, i64 176, !11, i64 184, !11, i64 192, !12, i64 200, !12, i64 208, !12, i64 216, !12, i64 224, !12, i64 232, !11, i64 240}
!10 = !{!"long", !6, i64 0}
!11 = !{!"p1 float", !12, i64 0}
!12 = !{!"any pointer", !6, i64 0}
!13 = !{!"p1 long", !12, i64 0}
!14 = !{!9, !12, i64 208}
!15 = !{!9, !12, i64 216}
!16 = !{!9, !12, i64 224}
!17 = !{!9, !10, i64 0}
!18 = !{!9, !10, i64 8}
!19 = !{!9, !11, i64 24}
!20 = !{!9, !12, i64 88}
!21 = !{!22, !22, i64 0}
!22 = !{!"float", !6, i64 0}
!23 = !{!6, !6, i64 0}
!24 = distinct !{!24, !25, !26}
!25 = !{!"llvm.loop.mustprogress"}
!26 = !{!"llvm.loop.unroll.disable"}
!27 = distinct !{!27, !25, !26}
!28 = !{!9, !11, i64 32}
!29 = !{!9, !12, i64 96}
!30 = distinct !{!30, !25, !26}
!31 = !{!9, !12, i64 176}
!32 = !{!9, !12, i64 168}
!33 = !{!9, !13, i64 40}
!34 = !{!9, !11, i64 192}
!35 = !{!9, !11, i64 184}
!36 = !{!9, !11, i64 240}
!37 = !{!9, !10, i64 16}
!38 = !{!9, !13, i64 56}
!39 = !{!10, !10, i64 0}
!40 = !{!9, !13, i64 48}
!41 = distinct !{!41, !25, !26}
!42 = !{!9, !12, i64 232}
!43 = !{!9, !12, i64 112}
!44 = distinct !{!44, !25, !26}
!45 = distinct !{!45, !25, !26}
!46 = !{!9, !12, i64 128}
!47 = !{!9, !12, i64 104}
!48 = !{!9, !11, i64 80}
!49 = !{!9, !12, i64 120}
!50 = distinct !{!50, !25, !26}
!51 = distinct !{!51, !25, !26}
!52 = distinct !{!52, !25, !26}
!53 = distinct !{!53, !25, !26}
!54 = !{!9, !12, i64 160}
!55 = !{!9, !11, i64 64}
!56 = !{!9, !11, i64 72}
!57 = !{!9, !12, i64 136}
!58 = !{!9, !12, i64 144}
!59 = !{!9, !12, i64 152}
!60 = distinct !{!60, !25, !26}
!61 = distinct !{!61, !25, !26}
!62 = distinct !{!62, !25, !26}
