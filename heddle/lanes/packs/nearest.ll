; ModuleID = '<string>'
source_filename = "<string>"

; Function Attrs: nofree norecurse nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable
define dso_local i64 @nearest(ptr noundef readonly captures(none) %0, i64 noundef %1, ptr noundef %2, i64 noundef %3) local_unnamed_addr #0 {
  %5 = alloca [12 x i64], align 16
  %6 = alloca [32 x i32], align 16
  %7 = alloca [12 x i32], align 16
  %8 = alloca [12 x i32], align 16
  %9 = getelementptr inbounds nuw i8, ptr %2, i64 4
  %10 = getelementptr inbounds i32, ptr %2, i64 %3
  %11 = load i64, ptr %0, align 8, !tbaa !8
  %12 = mul i64 %11, -140
  %13 = getelementptr i8, ptr %10, i64 %12
  %14 = getelementptr i8, ptr %13, i64 -2800
  %15 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %16 = load i64, ptr %15, align 8, !tbaa !14
  %17 = icmp slt i64 %16, 0
  %18 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %19 = load ptr, ptr %18, align 8, !tbaa !15
  br i1 %17, label %23, label %20

20:                                               ; preds = %4
  %21 = shl i64 %16, 2
  %22 = add i64 %21, 4
  tail call void @llvm.memset.p0.i64(ptr align 4 %19, i8 0, i64 %22, i1 false), !tbaa !4
  br label %23

23:                                               ; preds = %20, %4
  %24 = phi i64 [ %21, %20 ], [ 0, %4 ]
  %25 = icmp sgt i64 %16, 0
  %26 = icmp sgt i64 %11, 0
  %27 = icmp slt i64 %16, 1
  %28 = getelementptr inbounds nuw i8, ptr %0, i64 96
  %29 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %30 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %31 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %32 = getelementptr inbounds nuw i8, ptr %0, i64 88
  %33 = getelementptr i8, ptr %19, i64 4
  br label %34

34:                                               ; preds = %91, %23
  %35 = phi i1 [ true, %23 ], [ false, %91 ]
  %36 = phi i1 [ %27, %23 ], [ true, %91 ]
  br i1 %25, label %37, label %39

37:                                               ; preds = %34
  %38 = load ptr, ptr %28, align 8, !tbaa !16
  tail call void @llvm.memset.p0.i64(ptr align 4 %38, i8 -1, i64 %24, i1 false), !tbaa !4
  br label %39

39:                                               ; preds = %37, %34
  br i1 %26, label %40, label %46

40:                                               ; preds = %39
  %41 = load ptr, ptr %29, align 8, !tbaa !17
  %42 = load i32, ptr %41, align 4, !tbaa !4
  br label %48

43:                                               ; preds = %83, %48
  %44 = phi i32 [ %54, %48 ], [ %85, %83 ]
  %45 = icmp eq i64 %52, %11
  br i1 %45, label %46, label %48, !llvm.loop !18

46:                                               ; preds = %43, %39
  br i1 %25, label %88, label %47

47:                                               ; preds = %46
  store i32 0, ptr %19, align 4, !tbaa !4
  br label %91

48:                                               ; preds = %43, %40
  %49 = phi i32 [ %42, %40 ], [ %44, %43 ]
  %50 = phi i64 [ 0, %40 ], [ %52, %43 ]
  %51 = getelementptr inbounds nuw i32, ptr %41, i64 %50
  %52 = add nuw nsw i64 %50, 1
  %53 = getelementptr inbounds nuw i32, ptr %41, i64 %52
  %54 = load i32, ptr %53, align 4, !tbaa !4
  %55 = icmp slt i32 %49, %54
  br i1 %55, label %56, label %43

56:                                               ; preds = %48
  %57 = load ptr, ptr %30, align 8, !tbaa !21
  %58 = load ptr, ptr %28, align 8, !tbaa !16
  %59 = sext i32 %49 to i64
  %60 = trunc nuw nsw i64 %50 to i32
  br label %61

61:                                               ; preds = %83, %56
  %62 = phi i64 [ %59, %56 ], [ %84, %83 ]
  %63 = getelementptr inbounds i32, ptr %57, i64 %62
  %64 = load i32, ptr %63, align 4, !tbaa !4
  %65 = sext i32 %64 to i64
  %66 = getelementptr inbounds i32, ptr %58, i64 %65
  %67 = load i32, ptr %66, align 4, !tbaa !4
  %68 = zext i32 %67 to i64
  %69 = icmp eq i64 %50, %68
  br i1 %69, label %83, label %70

70:                                               ; preds = %61
  store i32 %60, ptr %66, align 4, !tbaa !4
  %71 = getelementptr inbounds i32, ptr %19, i64 %65
  %72 = load i32, ptr %71, align 4, !tbaa !4
  %73 = add nsw i32 %72, 1
  store i32 %73, ptr %71, align 4, !tbaa !4
  br i1 %35, label %83, label %74

74:                                               ; preds = %70
  %75 = load ptr, ptr %31, align 8, !tbaa !22
  %76 = sext i32 %72 to i64
  %77 = getelementptr inbounds i32, ptr %75, i64 %76
  store i32 %60, ptr %77, align 4, !tbaa !4
  %78 = load i32, ptr %51, align 4, !tbaa !4
  %79 = trunc nsw i64 %62 to i32
  %80 = sub nsw i32 %79, %78
  %81 = load ptr, ptr %32, align 8, !tbaa !23
  %82 = getelementptr inbounds i32, ptr %81, i64 %76
  store i32 %80, ptr %82, align 4, !tbaa !4
  br label %83

83:                                               ; preds = %74, %70, %61
  %84 = add nsw i64 %62, 1
  %85 = load i32, ptr %53, align 4, !tbaa !4
  %86 = sext i32 %85 to i64
  %87 = icmp slt i64 %84, %86
  br i1 %87, label %61, label %43, !llvm.loop !24

88:                                               ; preds = %46
  tail call void @llvm.memmove.p0.p0.i64(ptr align 4 %33, ptr align 4 %19, i64 %24, i1 false), !tbaa !4
  store i32 0, ptr %19, align 4, !tbaa !4
  br i1 %36, label %91, label %89

89:                                               ; preds = %88
  %90 = load i32, ptr %19, align 4
  br label %110

91:                                               ; preds = %110, %88, %47
  br i1 %35, label %34, label %92, !llvm.loop !25

92:                                               ; preds = %91
  %93 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %94 = load i64, ptr %93, align 8, !tbaa !26
  %95 = icmp slt i64 %1, %94
  %96 = icmp ult ptr %9, %14
  %97 = select i1 %95, i1 %96, i1 false
  br i1 %97, label %98, label %595

98:                                               ; preds = %92
  %99 = load ptr, ptr %30, align 8, !tbaa !21
  %100 = load ptr, ptr %29, align 8, !tbaa !17
  %101 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %102 = getelementptr inbounds nuw i8, ptr %0, i64 120
  %103 = getelementptr inbounds nuw i8, ptr %0, i64 104
  %104 = getelementptr inbounds nuw i8, ptr %0, i64 112
  %105 = getelementptr inbounds nuw i8, ptr %0, i64 48
  %106 = ptrtoint ptr %2 to i64
  %107 = getelementptr inbounds nuw i8, ptr %5, i64 88
  %108 = getelementptr inbounds nuw i8, ptr %0, i64 56
  %109 = getelementptr inbounds nuw i8, ptr %0, i64 64
  br label %118

110:                                              ; preds = %110, %89
  %111 = phi i32 [ %90, %89 ], [ %115, %110 ]
  %112 = phi i64 [ 1, %89 ], [ %116, %110 ]
  %113 = getelementptr i32, ptr %19, i64 %112
  %114 = load i32, ptr %113, align 4, !tbaa !4
  %115 = add nsw i32 %114, %111
  store i32 %115, ptr %113, align 4, !tbaa !4
  %116 = add nuw i64 %112, 1
  %117 = icmp eq i64 %112, %16
  br i1 %117, label %91, label %110, !llvm.loop !27

118:                                              ; preds = %589, %98
  %119 = phi i64 [ %1, %98 ], [ %590, %589 ]
  %120 = phi ptr [ %9, %98 ], [ %575, %589 ]
  %121 = load i64, ptr %0, align 8, !tbaa !8
  %122 = add nsw i64 %121, %119
  %123 = getelementptr inbounds i32, ptr %100, i64 %122
  %124 = load i32, ptr %123, align 4, !tbaa !4
  %125 = sext i32 %124 to i64
  %126 = getelementptr inbounds i32, ptr %99, i64 %125
  %127 = getelementptr i8, ptr %123, i64 4
  %128 = load i32, ptr %127, align 4, !tbaa !4
  %129 = sub nsw i32 %128, %124
  call void @llvm.lifetime.start.p0(ptr nonnull %6) #6
  call void @llvm.lifetime.start.p0(ptr nonnull %7) #6
  %130 = icmp sgt i32 %129, 0
  br i1 %130, label %131, label %133

131:                                              ; preds = %118
  %132 = zext nneg i32 %129 to i64
  br label %140

133:                                              ; preds = %222, %118
  %134 = phi i64 [ %121, %118 ], [ %223, %222 ]
  %135 = phi i64 [ 0, %118 ], [ %159, %222 ]
  %136 = phi i64 [ 0, %118 ], [ %224, %222 ]
  %137 = getelementptr inbounds nuw i8, ptr %120, i64 12
  %138 = load i32, ptr %126, align 4, !tbaa !4
  %139 = icmp slt i32 %138, 0
  br i1 %139, label %243, label %227

140:                                              ; preds = %222, %131
  %141 = phi i64 [ %121, %131 ], [ %223, %222 ]
  %142 = phi i64 [ 0, %131 ], [ %225, %222 ]
  %143 = phi i64 [ 0, %131 ], [ %224, %222 ]
  %144 = phi i64 [ 0, %131 ], [ %159, %222 ]
  %145 = getelementptr inbounds nuw i32, ptr %126, i64 %142
  %146 = load i32, ptr %145, align 4, !tbaa !4
  br label %147

147:                                              ; preds = %147, %140
  %148 = phi i64 [ %152, %147 ], [ 0, %140 ]
  %149 = getelementptr inbounds nuw i32, ptr %126, i64 %148
  %150 = load i32, ptr %149, align 4, !tbaa !4
  %151 = icmp eq i32 %150, %146
  %152 = add nuw nsw i64 %148, 1
  br i1 %151, label %153, label %147, !llvm.loop !28

153:                                              ; preds = %147
  %154 = getelementptr inbounds nuw i32, ptr %6, i64 %142
  %155 = trunc nuw nsw i64 %148 to i32
  store i32 %155, ptr %154, align 4, !tbaa !4
  %156 = icmp slt i32 %146, 0
  %157 = shl nuw i64 1, %148
  %158 = select i1 %156, i64 -9223372036854775808, i64 %157
  %159 = or i64 %158, %144
  %160 = and i64 %148, 4294967295
  %161 = icmp samesign ult i64 %160, %142
  %162 = or i1 %161, %156
  br i1 %162, label %222, label %163

163:                                              ; preds = %153
  %164 = zext nneg i32 %146 to i64
  %165 = getelementptr inbounds nuw i32, ptr %19, i64 %164
  %166 = load i32, ptr %165, align 4, !tbaa !4
  %167 = zext nneg i32 %146 to i64
  %168 = getelementptr i32, ptr %19, i64 %167
  %169 = getelementptr i8, ptr %168, i64 4
  %170 = load i32, ptr %169, align 4, !tbaa !4
  %171 = icmp slt i32 %166, %170
  br i1 %171, label %172, label %222

172:                                              ; preds = %163
  %173 = load ptr, ptr %31, align 8, !tbaa !22
  %174 = load ptr, ptr %101, align 8, !tbaa !29
  %175 = getelementptr inbounds i32, ptr %174, i64 %122
  %176 = shl nuw i64 1, %142
  %177 = sext i32 %166 to i64
  br label %178

178:                                              ; preds = %211, %172
  %179 = phi i64 [ %141, %172 ], [ %212, %211 ]
  %180 = phi i32 [ %146, %172 ], [ %213, %211 ]
  %181 = phi i64 [ %177, %172 ], [ %215, %211 ]
  %182 = phi i64 [ %143, %172 ], [ %214, %211 ]
  %183 = getelementptr inbounds i32, ptr %173, i64 %181
  %184 = load i32, ptr %183, align 4, !tbaa !4
  %185 = sext i32 %184 to i64
  %186 = getelementptr inbounds i32, ptr %174, i64 %185
  %187 = load i32, ptr %186, align 4, !tbaa !4
  %188 = load i32, ptr %175, align 4, !tbaa !4
  %189 = icmp eq i32 %187, %188
  br i1 %189, label %190, label %211

190:                                              ; preds = %178
  %191 = load ptr, ptr %102, align 8, !tbaa !30
  %192 = getelementptr inbounds i64, ptr %191, i64 %185
  %193 = load i64, ptr %192, align 8, !tbaa !31
  %194 = icmp eq i64 %193, 0
  br i1 %194, label %195, label %199

195:                                              ; preds = %190
  %196 = load ptr, ptr %103, align 8, !tbaa !32
  %197 = add nsw i64 %182, 1
  %198 = getelementptr inbounds i32, ptr %196, i64 %182
  store i32 %184, ptr %198, align 4, !tbaa !4
  br label %199

199:                                              ; preds = %195, %190
  %200 = phi i64 [ %182, %190 ], [ %197, %195 ]
  %201 = or i64 %193, %176
  store i64 %201, ptr %192, align 8, !tbaa !31
  %202 = load ptr, ptr %32, align 8, !tbaa !23
  %203 = getelementptr inbounds i32, ptr %202, i64 %181
  %204 = load i32, ptr %203, align 4, !tbaa !4
  %205 = load ptr, ptr %104, align 8, !tbaa !33
  %206 = load i64, ptr %0, align 8, !tbaa !8
  %207 = mul nsw i64 %206, %142
  %208 = getelementptr i32, ptr %205, i64 %207
  %209 = getelementptr i32, ptr %208, i64 %185
  store i32 %204, ptr %209, align 4, !tbaa !4
  %210 = load i32, ptr %145, align 4, !tbaa !4
  br label %211

211:                                              ; preds = %199, %178
  %212 = phi i64 [ %206, %199 ], [ %179, %178 ]
  %213 = phi i32 [ %210, %199 ], [ %180, %178 ]
  %214 = phi i64 [ %200, %199 ], [ %182, %178 ]
  %215 = add nsw i64 %181, 1
  %216 = sext i32 %213 to i64
  %217 = getelementptr i32, ptr %19, i64 %216
  %218 = getelementptr i8, ptr %217, i64 4
  %219 = load i32, ptr %218, align 4, !tbaa !4
  %220 = sext i32 %219 to i64
  %221 = icmp slt i64 %215, %220
  br i1 %221, label %178, label %222, !llvm.loop !34

222:                                              ; preds = %211, %163, %153
  %223 = phi i64 [ %141, %153 ], [ %141, %163 ], [ %212, %211 ]
  %224 = phi i64 [ %143, %153 ], [ %143, %163 ], [ %214, %211 ]
  %225 = add nuw nsw i64 %142, 1
  %226 = icmp eq i64 %225, %132
  br i1 %226, label %133, label %140, !llvm.loop !35

227:                                              ; preds = %133
  %228 = zext nneg i32 %138 to i64
  %229 = getelementptr inbounds nuw i32, ptr %19, i64 %228
  %230 = load i32, ptr %229, align 4, !tbaa !4
  %231 = sext i32 %230 to i64
  %232 = zext nneg i32 %129 to i64
  br label %233

233:                                              ; preds = %287, %227
  %234 = phi i64 [ %231, %227 ], [ %289, %287 ]
  %235 = phi i32 [ %138, %227 ], [ %290, %287 ]
  %236 = phi ptr [ %137, %227 ], [ %288, %287 ]
  %237 = zext nneg i32 %235 to i64
  %238 = getelementptr inbounds nuw i32, ptr %19, i64 %237
  %239 = getelementptr inbounds nuw i8, ptr %238, i64 4
  %240 = load i32, ptr %239, align 4, !tbaa !4
  %241 = sext i32 %240 to i64
  %242 = icmp slt i64 %234, %241
  br i1 %242, label %254, label %243

243:                                              ; preds = %287, %233, %133
  %244 = phi ptr [ %137, %133 ], [ %288, %287 ], [ %236, %233 ]
  %245 = ptrtoint ptr %244 to i64
  %246 = sub i64 %245, %106
  %247 = lshr exact i64 %246, 2
  %248 = trunc i64 %247 to i32
  store i32 %248, ptr %120, align 4, !tbaa !4
  call void @llvm.lifetime.start.p0(ptr nonnull %8) #6
  %249 = sdiv i32 %129, 2
  %250 = icmp sgt i64 %136, 0
  %251 = getelementptr i32, ptr %100, i64 %119
  %252 = getelementptr i32, ptr %251, i64 %134
  %253 = getelementptr i8, ptr %252, i64 4
  br label %301

254:                                              ; preds = %233
  %255 = load ptr, ptr %31, align 8, !tbaa !22
  %256 = getelementptr inbounds i32, ptr %255, i64 %234
  %257 = load i32, ptr %256, align 4, !tbaa !4
  %258 = load ptr, ptr %102, align 8, !tbaa !30
  %259 = sext i32 %257 to i64
  %260 = getelementptr inbounds i64, ptr %258, i64 %259
  %261 = load i64, ptr %260, align 8, !tbaa !31
  %262 = icmp eq i64 %261, %135
  br i1 %262, label %263, label %287

263:                                              ; preds = %254
  %264 = load ptr, ptr %105, align 8, !tbaa !36
  %265 = getelementptr inbounds i32, ptr %264, i64 %259
  %266 = load i32, ptr %265, align 4, !tbaa !4
  %267 = getelementptr inbounds i32, ptr %264, i64 %122
  %268 = load i32, ptr %267, align 4, !tbaa !4
  %269 = icmp eq i32 %266, %268
  br i1 %269, label %287, label %270

270:                                              ; preds = %263
  store i32 %266, ptr %236, align 4, !tbaa !4
  %271 = getelementptr inbounds nuw i8, ptr %236, i64 4
  br i1 %130, label %272, label %287

272:                                              ; preds = %270
  %273 = load ptr, ptr %104, align 8, !tbaa !33
  %274 = getelementptr i32, ptr %273, i64 %259
  br label %275

275:                                              ; preds = %275, %272
  %276 = phi i64 [ 0, %272 ], [ %284, %275 ]
  %277 = phi ptr [ %271, %272 ], [ %285, %275 ]
  %278 = getelementptr inbounds nuw i32, ptr %6, i64 %276
  %279 = load i32, ptr %278, align 4, !tbaa !4
  %280 = sext i32 %279 to i64
  %281 = mul nsw i64 %134, %280
  %282 = getelementptr i32, ptr %274, i64 %281
  %283 = load i32, ptr %282, align 4, !tbaa !4
  store i32 %283, ptr %277, align 4, !tbaa !4
  %284 = add nuw nsw i64 %276, 1
  %285 = getelementptr inbounds nuw i8, ptr %277, i64 4
  %286 = icmp eq i64 %284, %232
  br i1 %286, label %287, label %275, !llvm.loop !37

287:                                              ; preds = %275, %270, %263, %254
  %288 = phi ptr [ %236, %254 ], [ %236, %263 ], [ %271, %270 ], [ %285, %275 ]
  %289 = add nsw i64 %234, 1
  %290 = load i32, ptr %126, align 4, !tbaa !4
  %291 = icmp sgt i32 %290, -1
  br i1 %291, label %233, label %243, !llvm.loop !38

292:                                              ; preds = %512
  %293 = ptrtoint ptr %513 to i64
  %294 = sub i64 %293, %106
  %295 = lshr exact i64 %294, 2
  %296 = trunc i64 %295 to i32
  %297 = getelementptr inbounds nuw i8, ptr %120, i64 4
  store i32 %296, ptr %297, align 4, !tbaa !4
  %298 = icmp sgt i32 %129, 2
  %299 = icmp sgt i32 %514, 0
  %300 = select i1 %298, i1 %299, i1 false
  br i1 %300, label %527, label %573

301:                                              ; preds = %512, %243
  %302 = phi i32 [ 0, %243 ], [ %516, %512 ]
  %303 = phi i32 [ %249, %243 ], [ %515, %512 ]
  %304 = phi i32 [ 0, %243 ], [ %514, %512 ]
  %305 = phi ptr [ %244, %243 ], [ %513, %512 ]
  call void @llvm.lifetime.start.p0(ptr nonnull %5) #6
  br i1 %250, label %306, label %376

306:                                              ; preds = %301
  %307 = load ptr, ptr %103, align 8, !tbaa !32
  br label %312

308:                                              ; preds = %364
  %309 = icmp sgt i32 %365, 0
  br i1 %309, label %310, label %376

310:                                              ; preds = %308
  %311 = zext nneg i32 %365 to i64
  br label %368

312:                                              ; preds = %364, %306
  %313 = phi i32 [ 0, %306 ], [ %365, %364 ]
  %314 = phi i64 [ 0, %306 ], [ %366, %364 ]
  %315 = getelementptr inbounds nuw i32, ptr %307, i64 %314
  %316 = load i32, ptr %315, align 4, !tbaa !4
  %317 = sext i32 %316 to i64
  %318 = getelementptr i32, ptr %100, i64 %317
  %319 = getelementptr i8, ptr %318, i64 4
  %320 = load i32, ptr %319, align 4, !tbaa !4
  %321 = load i32, ptr %318, align 4, !tbaa !4
  %322 = sub nsw i32 %320, %321
  %323 = icmp eq i32 %322, %303
  br i1 %323, label %324, label %364

324:                                              ; preds = %312
  %325 = load ptr, ptr %102, align 8, !tbaa !30
  %326 = getelementptr inbounds i64, ptr %325, i64 %317
  %327 = load i64, ptr %326, align 8, !tbaa !31
  %328 = icmp eq i64 %327, %135
  br i1 %328, label %364, label %329

329:                                              ; preds = %324
  %330 = tail call range(i64 0, 65) i64 @llvm.ctpop.i64(i64 %327)
  %331 = trunc nuw nsw i64 %330 to i32
  %332 = sub nsw i32 %129, %331
  %333 = zext i32 %332 to i64
  %334 = tail call range(i64 0, 65) i64 @llvm.cttz.i64(i64 %327, i1 true)
  %335 = shl i64 %333, 38
  %336 = shl nuw nsw i64 %334, 32
  %337 = or disjoint i64 %335, %336
  %338 = or i64 %337, %317
  %339 = icmp slt i32 %313, 12
  %340 = zext i1 %339 to i32
  %341 = add nsw i32 %313, %340
  %342 = icmp sgt i32 %313, 11
  br i1 %342, label %343, label %346

343:                                              ; preds = %329
  %344 = load i64, ptr %107, align 8, !tbaa !31
  %345 = icmp sgt i64 %338, %344
  br i1 %345, label %364, label %348

346:                                              ; preds = %329
  %347 = icmp sgt i32 %313, 0
  br i1 %347, label %348, label %360

348:                                              ; preds = %346, %343
  %349 = phi i32 [ 11, %343 ], [ %313, %346 ]
  br label %350

350:                                              ; preds = %357, %348
  %351 = phi i32 [ %358, %357 ], [ %349, %348 ]
  %352 = zext nneg i32 %351 to i64
  %353 = getelementptr i64, ptr %5, i64 %352
  %354 = getelementptr i8, ptr %353, i64 -8
  %355 = load i64, ptr %354, align 8, !tbaa !31
  %356 = icmp sgt i64 %355, %338
  br i1 %356, label %357, label %360

357:                                              ; preds = %350
  store i64 %355, ptr %353, align 8, !tbaa !31
  %358 = add nsw i32 %351, -1
  %359 = icmp sgt i32 %351, 1
  br i1 %359, label %350, label %360, !llvm.loop !39

360:                                              ; preds = %357, %350, %346
  %361 = phi i32 [ %313, %346 ], [ %351, %350 ], [ 0, %357 ]
  %362 = sext i32 %361 to i64
  %363 = getelementptr inbounds i64, ptr %5, i64 %362
  store i64 %338, ptr %363, align 8, !tbaa !31
  br label %364

364:                                              ; preds = %360, %343, %324, %312
  %365 = phi i32 [ %313, %312 ], [ %313, %324 ], [ %341, %343 ], [ %341, %360 ]
  %366 = add nuw nsw i64 %314, 1
  %367 = icmp eq i64 %366, %136
  br i1 %367, label %308, label %312, !llvm.loop !40

368:                                              ; preds = %368, %310
  %369 = phi i64 [ 0, %310 ], [ %374, %368 ]
  %370 = getelementptr inbounds nuw i64, ptr %5, i64 %369
  %371 = load i64, ptr %370, align 8, !tbaa !31
  %372 = trunc i64 %371 to i32
  %373 = getelementptr inbounds nuw i32, ptr %7, i64 %369
  store i32 %372, ptr %373, align 4, !tbaa !4
  %374 = add nuw nsw i64 %369, 1
  %375 = icmp eq i64 %374, %311
  br i1 %375, label %377, label %368, !llvm.loop !41

376:                                              ; preds = %308, %301
  call void @llvm.lifetime.end.p0(ptr nonnull %5) #6
  br label %512

377:                                              ; preds = %368
  call void @llvm.lifetime.end.p0(ptr nonnull %5) #6
  %378 = tail call i32 @llvm.umin.i32(i32 %365, i32 8)
  %379 = zext nneg i32 %378 to i64
  br label %385

380:                                              ; preds = %498, %385
  %381 = phi i32 [ %389, %385 ], [ %499, %498 ]
  %382 = phi ptr [ %388, %385 ], [ %500, %498 ]
  %383 = add nuw nsw i64 %387, 1
  %384 = icmp eq i64 %390, %379
  br i1 %384, label %505, label %385, !llvm.loop !42

385:                                              ; preds = %380, %377
  %386 = phi i64 [ 0, %377 ], [ %390, %380 ]
  %387 = phi i64 [ 1, %377 ], [ %383, %380 ]
  %388 = phi ptr [ %305, %377 ], [ %382, %380 ]
  %389 = phi i32 [ 0, %377 ], [ %381, %380 ]
  %390 = add nuw nsw i64 %386, 1
  %391 = icmp samesign ult i64 %390, %311
  %392 = icmp slt i32 %389, 4
  %393 = select i1 %391, i1 %392, i1 false
  br i1 %393, label %394, label %380

394:                                              ; preds = %385
  %395 = getelementptr inbounds nuw i32, ptr %7, i64 %386
  %396 = load ptr, ptr %102, align 8, !tbaa !30
  br label %397

397:                                              ; preds = %498, %394
  %398 = phi i64 [ %387, %394 ], [ %501, %498 ]
  %399 = phi ptr [ %388, %394 ], [ %500, %498 ]
  %400 = phi i32 [ %389, %394 ], [ %499, %498 ]
  %401 = load i32, ptr %395, align 4, !tbaa !4
  %402 = getelementptr inbounds nuw i32, ptr %7, i64 %398
  %403 = load i32, ptr %402, align 4, !tbaa !4
  %404 = sext i32 %401 to i64
  %405 = getelementptr inbounds i64, ptr %396, i64 %404
  %406 = load i64, ptr %405, align 8, !tbaa !31
  %407 = sext i32 %403 to i64
  %408 = getelementptr inbounds i64, ptr %396, i64 %407
  %409 = load i64, ptr %408, align 8, !tbaa !31
  %410 = or i64 %409, %406
  %411 = icmp eq i64 %410, %135
  br i1 %411, label %412, label %498

412:                                              ; preds = %397
  %413 = load ptr, ptr %108, align 8, !tbaa !43
  %414 = getelementptr inbounds i32, ptr %413, i64 %119
  %415 = load i32, ptr %414, align 4, !tbaa !4
  %416 = icmp eq i32 %401, %415
  br i1 %416, label %417, label %422

417:                                              ; preds = %412
  %418 = load ptr, ptr %109, align 8, !tbaa !44
  %419 = getelementptr inbounds i32, ptr %418, i64 %119
  %420 = load i32, ptr %419, align 4, !tbaa !4
  %421 = icmp eq i32 %403, %420
  br i1 %421, label %498, label %422

422:                                              ; preds = %417, %412
  %423 = getelementptr i32, ptr %100, i64 %404
  %424 = getelementptr i8, ptr %423, i64 4
  %425 = load i32, ptr %424, align 4, !tbaa !4
  %426 = load i32, ptr %423, align 4, !tbaa !4
  %427 = sub nsw i32 %425, %426
  %428 = getelementptr inbounds nuw i8, ptr %399, i64 4
  store i32 %427, ptr %399, align 4, !tbaa !4
  %429 = load ptr, ptr %105, align 8, !tbaa !36
  %430 = getelementptr inbounds i32, ptr %429, i64 %404
  %431 = load i32, ptr %430, align 4, !tbaa !4
  %432 = getelementptr inbounds nuw i8, ptr %399, i64 8
  store i32 %431, ptr %428, align 4, !tbaa !4
  %433 = getelementptr inbounds i32, ptr %429, i64 %407
  %434 = load i32, ptr %433, align 4, !tbaa !4
  %435 = getelementptr inbounds nuw i8, ptr %399, i64 12
  store i32 %434, ptr %432, align 4, !tbaa !4
  %436 = load i32, ptr %252, align 4, !tbaa !4
  %437 = sext i32 %436 to i64
  %438 = getelementptr inbounds i32, ptr %99, i64 %437
  %439 = load i32, ptr %253, align 4, !tbaa !4
  %440 = sub nsw i32 %439, %436
  %441 = load i32, ptr %424, align 4, !tbaa !4
  %442 = load i32, ptr %423, align 4, !tbaa !4
  %443 = sub nsw i32 %441, %442
  %444 = icmp sgt i32 %440, 0
  br i1 %444, label %445, label %495

445:                                              ; preds = %422
  %446 = getelementptr inbounds i32, ptr %100, i64 %407
  %447 = sext i32 %443 to i64
  %448 = zext nneg i32 %440 to i64
  br label %449

449:                                              ; preds = %490, %445
  %450 = phi i64 [ 0, %445 ], [ %493, %490 ]
  %451 = phi ptr [ %435, %445 ], [ %492, %490 ]
  %452 = getelementptr inbounds nuw i32, ptr %6, i64 %450
  %453 = load i32, ptr %452, align 4, !tbaa !4
  %454 = sext i32 %453 to i64
  %455 = mul nsw i64 %134, %454
  %456 = icmp slt i64 %450, %447
  br i1 %456, label %457, label %476

457:                                              ; preds = %449
  %458 = load i32, ptr %423, align 4, !tbaa !4
  %459 = trunc nuw nsw i64 %450 to i32
  %460 = add nsw i32 %458, %459
  %461 = sext i32 %460 to i64
  %462 = getelementptr inbounds i32, ptr %99, i64 %461
  %463 = load i32, ptr %462, align 4, !tbaa !4
  %464 = getelementptr inbounds nuw i32, ptr %438, i64 %450
  %465 = load i32, ptr %464, align 4, !tbaa !4
  %466 = icmp eq i32 %463, %465
  br i1 %466, label %490, label %467

467:                                              ; preds = %457
  %468 = load i32, ptr %446, align 4, !tbaa !4
  %469 = add nsw i32 %468, %459
  %470 = sext i32 %469 to i64
  %471 = getelementptr inbounds i32, ptr %99, i64 %470
  %472 = load i32, ptr %471, align 4, !tbaa !4
  %473 = icmp eq i32 %472, %465
  br i1 %473, label %474, label %476

474:                                              ; preds = %467
  %475 = add nsw i32 %443, %459
  br label %490

476:                                              ; preds = %467, %449
  %477 = zext nneg i32 %453 to i64
  %478 = shl nuw i64 1, %477
  %479 = and i64 %478, %406
  %480 = icmp eq i64 %479, 0
  %481 = load ptr, ptr %104, align 8, !tbaa !33
  %482 = getelementptr i32, ptr %481, i64 %455
  br i1 %480, label %486, label %483

483:                                              ; preds = %476
  %484 = getelementptr i32, ptr %482, i64 %404
  %485 = load i32, ptr %484, align 4, !tbaa !4
  br label %490

486:                                              ; preds = %476
  %487 = getelementptr i32, ptr %482, i64 %407
  %488 = load i32, ptr %487, align 4, !tbaa !4
  %489 = add nsw i32 %488, %443
  br label %490

490:                                              ; preds = %486, %483, %474, %457
  %491 = phi i32 [ %475, %474 ], [ %459, %457 ], [ %485, %483 ], [ %489, %486 ]
  store i32 %491, ptr %451, align 4, !tbaa !4
  %492 = getelementptr inbounds nuw i8, ptr %451, i64 4
  %493 = add nuw nsw i64 %450, 1
  %494 = icmp eq i64 %493, %448
  br i1 %494, label %495, label %449, !llvm.loop !45

495:                                              ; preds = %490, %422
  %496 = phi ptr [ %435, %422 ], [ %492, %490 ]
  %497 = add nsw i32 %400, 1
  br label %498

498:                                              ; preds = %495, %417, %397
  %499 = phi i32 [ %497, %495 ], [ %400, %397 ], [ %400, %417 ]
  %500 = phi ptr [ %496, %495 ], [ %399, %397 ], [ %399, %417 ]
  %501 = add nuw nsw i64 %398, 1
  %502 = icmp samesign ult i64 %501, %311
  %503 = icmp slt i32 %499, 4
  %504 = select i1 %502, i1 %503, i1 false
  br i1 %504, label %397, label %380, !llvm.loop !46

505:                                              ; preds = %380
  %506 = icmp eq i32 %303, %129
  br i1 %506, label %507, label %512

507:                                              ; preds = %505
  %508 = zext nneg i32 %365 to i64
  %509 = sext i32 %304 to i64
  br label %518

510:                                              ; preds = %518
  %511 = trunc nsw i64 %523 to i32
  br label %512

512:                                              ; preds = %510, %505, %376
  %513 = phi ptr [ %382, %505 ], [ %382, %510 ], [ %305, %376 ]
  %514 = phi i32 [ %304, %505 ], [ %511, %510 ], [ %304, %376 ]
  %515 = shl nsw i32 %303, 1
  %516 = add nuw nsw i32 %302, 1
  %517 = icmp eq i32 %516, 4
  br i1 %517, label %292, label %301, !llvm.loop !47

518:                                              ; preds = %518, %507
  %519 = phi i64 [ %509, %507 ], [ %523, %518 ]
  %520 = phi i64 [ 0, %507 ], [ %525, %518 ]
  %521 = getelementptr inbounds nuw i32, ptr %7, i64 %520
  %522 = load i32, ptr %521, align 4, !tbaa !4
  %523 = add nsw i64 %519, 1
  %524 = getelementptr inbounds i32, ptr %8, i64 %519
  store i32 %522, ptr %524, align 4, !tbaa !4
  %525 = add nuw nsw i64 %520, 1
  %526 = icmp samesign ult i64 %525, %508
  br i1 %526, label %518, label %510, !llvm.loop !48

527:                                              ; preds = %292
  %528 = zext nneg i32 %514 to i64
  %529 = zext nneg i32 %129 to i64
  br label %530

530:                                              ; preds = %564, %527
  %531 = phi i64 [ 0, %527 ], [ %566, %564 ]
  %532 = phi ptr [ %513, %527 ], [ %565, %564 ]
  %533 = getelementptr inbounds nuw i32, ptr %8, i64 %531
  %534 = load i32, ptr %533, align 4, !tbaa !4
  %535 = sext i32 %534 to i64
  %536 = getelementptr inbounds i32, ptr %100, i64 %535
  %537 = load i32, ptr %536, align 4, !tbaa !4
  %538 = sext i32 %537 to i64
  %539 = getelementptr i32, ptr %99, i64 %538
  br label %544

540:                                              ; preds = %544
  %541 = tail call range(i32 0, 33) i32 @llvm.ctpop.i32(i32 %555)
  %542 = shl nuw nsw i32 %541, 1
  %543 = icmp samesign ugt i32 %542, %129
  br i1 %543, label %564, label %558

544:                                              ; preds = %544, %530
  %545 = phi i64 [ 0, %530 ], [ %556, %544 ]
  %546 = phi i32 [ 0, %530 ], [ %555, %544 ]
  %547 = getelementptr i32, ptr %539, i64 %545
  %548 = load i32, ptr %547, align 4, !tbaa !4
  %549 = getelementptr inbounds nuw i32, ptr %126, i64 %545
  %550 = load i32, ptr %549, align 4, !tbaa !4
  %551 = icmp ne i32 %548, %550
  %552 = zext i1 %551 to i32
  %553 = trunc nuw nsw i64 %545 to i32
  %554 = shl nuw i32 %552, %553
  %555 = or i32 %554, %546
  %556 = add nuw nsw i64 %545, 1
  %557 = icmp eq i64 %556, %529
  br i1 %557, label %540, label %544, !llvm.loop !49

558:                                              ; preds = %540
  %559 = load ptr, ptr %105, align 8, !tbaa !36
  %560 = getelementptr inbounds i32, ptr %559, i64 %535
  %561 = load i32, ptr %560, align 4, !tbaa !4
  %562 = getelementptr inbounds nuw i8, ptr %532, i64 4
  store i32 %561, ptr %532, align 4, !tbaa !4
  %563 = getelementptr inbounds nuw i8, ptr %532, i64 8
  store i32 %555, ptr %562, align 4, !tbaa !4
  br label %564

564:                                              ; preds = %558, %540
  %565 = phi ptr [ %563, %558 ], [ %532, %540 ]
  %566 = add nuw nsw i64 %531, 1
  %567 = icmp eq i64 %566, %528
  br i1 %567, label %568, label %530, !llvm.loop !50

568:                                              ; preds = %564
  %569 = ptrtoint ptr %565 to i64
  %570 = sub i64 %569, %106
  %571 = lshr exact i64 %570, 2
  %572 = trunc i64 %571 to i32
  br label %573

573:                                              ; preds = %568, %292
  %574 = phi i32 [ %572, %568 ], [ %296, %292 ]
  %575 = phi ptr [ %565, %568 ], [ %513, %292 ]
  %576 = getelementptr inbounds nuw i8, ptr %120, i64 8
  store i32 %574, ptr %576, align 4, !tbaa !4
  %577 = icmp eq i64 %136, 0
  br i1 %577, label %589, label %578

578:                                              ; preds = %573
  %579 = load ptr, ptr %102, align 8, !tbaa !30
  %580 = load ptr, ptr %103, align 8, !tbaa !32
  br label %581

581:                                              ; preds = %581, %578
  %582 = phi i64 [ %136, %578 ], [ %583, %581 ]
  %583 = add nsw i64 %582, -1
  %584 = getelementptr inbounds i32, ptr %580, i64 %583
  %585 = load i32, ptr %584, align 4, !tbaa !4
  %586 = sext i32 %585 to i64
  %587 = getelementptr inbounds i64, ptr %579, i64 %586
  store i64 0, ptr %587, align 8, !tbaa !31
  %588 = icmp eq i64 %583, 0
  br i1 %588, label %589, label %581, !llvm.loop !51

589:                                              ; preds = %581, %573
  call void @llvm.lifetime.end.p0(ptr nonnull %8) #6
  call void @llvm.lifetime.end.p0(ptr nonnull %7) #6
  call void @llvm.lifetime.end.p0(ptr nonnull %6) #6
  %590 = add nsw i64 %119, 1
  %591 = load i64, ptr %93, align 8, !tbaa !26
  %592 = icmp slt i64 %590, %591
  %593 = icmp ult ptr %575, %14
  %594 = select i1 %592, i1 %593, i1 false
  br i1 %594, label %118, label %595, !llvm.loop !52

595:                                              ; preds = %589, %92
  %596 = phi i32 [ 1, %92 ], [ %574, %589 ]
  %597 = phi i64 [ %1, %92 ], [ %590, %589 ]
  store i32 %596, ptr %2, align 4, !tbaa !4
  ret i64 %597
}

; Function Attrs: nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.start.p0(ptr captures(none)) #1

; Function Attrs: nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.end.p0(ptr captures(none)) #1

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.ctpop.i64(i64) #2

; Function Attrs: nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare i64 @llvm.cttz.i64(i64, i1 immarg) #3

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.ctpop.i32(i32) #2

; Function Attrs: nocallback nofree nounwind willreturn memory(argmem: write)
declare void @llvm.memset.p0.i64(ptr writeonly captures(none), i8, i64, i1 immarg) #4

; Function Attrs: nocallback nofree nounwind willreturn memory(argmem: readwrite)
declare void @llvm.memmove.p0.p0.i64(ptr writeonly captures(none), ptr readonly captures(none), i64, i1 immarg) #5

; Function Attrs: nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.umin.i32(i32, i32) #2

attributes #0 = { nofree norecurse nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable "min-legal-vector-width"="0" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }
attributes #1 = { nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #2 = { nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #3 = { nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #4 = { nocallback nofree nounwind willreturn memory(argmem: write) }
attributes #5 = { nocallback nofree nounwind willreturn memory(argmem: readwrite) }
attributes #6 = { nounwind }

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
!8 = !{!9, !10, i64 0}
!9 = !{!"", !10, i64 0, !10, i64 8, !10, i64 16, !11, i64 24, !11, i64 32, !11, i64 40, !11, i64 48, !11, i64 56, !11, i64 64, !11, i64 72, !11, i64 80, !11, i64 88, !11, i64 96, !11, i64 104, !11, i64 112, !13, i64 120}
!10 = !{!"long", !6, i64 0}
!11 = !{!"p1 int", !12, i64 0}
!12 = !{!"any pointer", !6, i64 0}
!13 = !{!"p1 long", !12, i64 0}
!14 = !{!9, !10, i64 16}
!15 = !{!9, !11, i64 72}
!16 = !{!9, !11, i64 96}
!17 = !{!9, !11, i64 24}
!18 = distinct !{!18, !19, !20}
!19 = !{!"llvm.loop.mustprogress"}
!20 = !{!"llvm.loop.unroll.disable"}
!21 = !{!9, !11, i64 32}
!22 = !{!9, !11, i64 80}
!23 = !{!9, !11, i64 88}
!24 = distinct !{!24, !19, !20}
!25 = distinct !{!25, !19, !20}
!26 = !{!9, !10, i64 8}
!27 = distinct !{!27, !19, !20}
!28 = distinct !{!28, !19, !20}
!29 = !{!9, !11, i64 40}
!30 = !{!9, !13, i64 120}
!31 = !{!10, !10, i64 0}
!32 = !{!9, !11, i64 104}
!33 = !{!9, !11, i64 112}
!34 = distinct !{!34, !19, !20}
!35 = distinct !{!35, !19, !20}
!36 = !{!9, !11, i64 48}
!37 = distinct !{!37, !19, !20}
!38 = distinct !{!38, !19, !20}
!39 = distinct !{!39, !19, !20}
!40 = distinct !{!40, !19, !20}
!41 = distinct !{!41, !19, !20}
!42 = distinct !{!42, !19, !20}
!43 = !{!9, !11, i64 56}
!44 = !{!9, !11, i64 64}
!45 = distinct !{!45, !19, !20}
!46 = distinct !{!46, !19, !20}
!47 = distinct !{!47, !19, !20}
!48 = distinct !{!48, !19, !20}
!49 = distinct !{!49, !19, !20}
!50 = distinct !{!50, !19, !20}
!51 = distinct !{!51, !19, !20}
!52 = distinct !{!52, !19, !20}
