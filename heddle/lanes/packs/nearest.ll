; ModuleID = '<string>'
source_filename = "<string>"

; Function Attrs: nofree norecurse nosync nounwind optsize memory(readwrite, inaccessiblemem: none, target_mem0: none, target_mem1: none) uwtable
define dso_local i64 @nearest(ptr noundef readonly captures(none) %0, i64 noundef %1, ptr noundef %2, i64 noundef %3) local_unnamed_addr #0 {
  %5 = alloca [12 x i64], align 16
  %6 = alloca [32 x i32], align 16
  %7 = alloca [12 x i32], align 16
  %8 = getelementptr inbounds nuw i8, ptr %2, i64 4
  %9 = getelementptr inbounds i32, ptr %2, i64 %3
  %10 = load i64, ptr %0, align 8, !tbaa !8
  %11 = mul i64 %10, -136
  %12 = getelementptr i8, ptr %9, i64 %11
  %13 = getelementptr i8, ptr %12, i64 -2720
  %14 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %15 = load i64, ptr %14, align 8, !tbaa !14
  %16 = icmp slt i64 %15, 0
  %17 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %18 = load ptr, ptr %17, align 8, !tbaa !15
  br i1 %16, label %22, label %19

19:                                               ; preds = %4
  %20 = shl i64 %15, 2
  %21 = add i64 %20, 4
  tail call void @llvm.memset.p0.i64(ptr align 4 %18, i8 0, i64 %21, i1 false), !tbaa !4
  br label %22

22:                                               ; preds = %19, %4
  %23 = phi i64 [ %20, %19 ], [ 0, %4 ]
  %24 = icmp sgt i64 %15, 0
  %25 = icmp sgt i64 %10, 0
  %26 = icmp slt i64 %15, 1
  %27 = getelementptr inbounds nuw i8, ptr %0, i64 96
  %28 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %29 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %30 = getelementptr inbounds nuw i8, ptr %0, i64 80
  %31 = getelementptr inbounds nuw i8, ptr %0, i64 88
  %32 = getelementptr i8, ptr %18, i64 4
  br label %33

33:                                               ; preds = %90, %22
  %34 = phi i1 [ true, %22 ], [ false, %90 ]
  %35 = phi i1 [ %26, %22 ], [ true, %90 ]
  br i1 %24, label %36, label %38

36:                                               ; preds = %33
  %37 = load ptr, ptr %27, align 8, !tbaa !16
  tail call void @llvm.memset.p0.i64(ptr align 4 %37, i8 -1, i64 %23, i1 false), !tbaa !4
  br label %38

38:                                               ; preds = %36, %33
  br i1 %25, label %39, label %45

39:                                               ; preds = %38
  %40 = load ptr, ptr %28, align 8, !tbaa !17
  %41 = load i32, ptr %40, align 4, !tbaa !4
  br label %47

42:                                               ; preds = %82, %47
  %43 = phi i32 [ %53, %47 ], [ %84, %82 ]
  %44 = icmp eq i64 %51, %10
  br i1 %44, label %45, label %47, !llvm.loop !18

45:                                               ; preds = %42, %38
  br i1 %24, label %87, label %46

46:                                               ; preds = %45
  store i32 0, ptr %18, align 4, !tbaa !4
  br label %90

47:                                               ; preds = %42, %39
  %48 = phi i32 [ %41, %39 ], [ %43, %42 ]
  %49 = phi i64 [ 0, %39 ], [ %51, %42 ]
  %50 = getelementptr inbounds nuw i32, ptr %40, i64 %49
  %51 = add nuw nsw i64 %49, 1
  %52 = getelementptr inbounds nuw i32, ptr %40, i64 %51
  %53 = load i32, ptr %52, align 4, !tbaa !4
  %54 = icmp slt i32 %48, %53
  br i1 %54, label %55, label %42

55:                                               ; preds = %47
  %56 = load ptr, ptr %29, align 8, !tbaa !21
  %57 = load ptr, ptr %27, align 8, !tbaa !16
  %58 = sext i32 %48 to i64
  %59 = trunc nuw nsw i64 %49 to i32
  br label %60

60:                                               ; preds = %82, %55
  %61 = phi i64 [ %58, %55 ], [ %83, %82 ]
  %62 = getelementptr inbounds i32, ptr %56, i64 %61
  %63 = load i32, ptr %62, align 4, !tbaa !4
  %64 = sext i32 %63 to i64
  %65 = getelementptr inbounds i32, ptr %57, i64 %64
  %66 = load i32, ptr %65, align 4, !tbaa !4
  %67 = zext i32 %66 to i64
  %68 = icmp eq i64 %49, %67
  br i1 %68, label %82, label %69

69:                                               ; preds = %60
  store i32 %59, ptr %65, align 4, !tbaa !4
  %70 = getelementptr inbounds i32, ptr %18, i64 %64
  %71 = load i32, ptr %70, align 4, !tbaa !4
  %72 = add nsw i32 %71, 1
  store i32 %72, ptr %70, align 4, !tbaa !4
  br i1 %34, label %82, label %73

73:                                               ; preds = %69
  %74 = load ptr, ptr %30, align 8, !tbaa !22
  %75 = sext i32 %71 to i64
  %76 = getelementptr inbounds i32, ptr %74, i64 %75
  store i32 %59, ptr %76, align 4, !tbaa !4
  %77 = load i32, ptr %50, align 4, !tbaa !4
  %78 = trunc nsw i64 %61 to i32
  %79 = sub nsw i32 %78, %77
  %80 = load ptr, ptr %31, align 8, !tbaa !23
  %81 = getelementptr inbounds i32, ptr %80, i64 %75
  store i32 %79, ptr %81, align 4, !tbaa !4
  br label %82

82:                                               ; preds = %73, %69, %60
  %83 = add nsw i64 %61, 1
  %84 = load i32, ptr %52, align 4, !tbaa !4
  %85 = sext i32 %84 to i64
  %86 = icmp slt i64 %83, %85
  br i1 %86, label %60, label %42, !llvm.loop !24

87:                                               ; preds = %45
  tail call void @llvm.memmove.p0.p0.i64(ptr align 4 %32, ptr align 4 %18, i64 %23, i1 false), !tbaa !4
  store i32 0, ptr %18, align 4, !tbaa !4
  br i1 %35, label %90, label %88

88:                                               ; preds = %87
  %89 = load i32, ptr %18, align 4
  br label %108

90:                                               ; preds = %108, %87, %46
  br i1 %34, label %33, label %91, !llvm.loop !25

91:                                               ; preds = %90
  %92 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %93 = load i64, ptr %92, align 8, !tbaa !26
  %94 = icmp slt i64 %1, %93
  %95 = icmp ult ptr %8, %13
  %96 = select i1 %94, i1 %95, i1 false
  br i1 %96, label %97, label %569

97:                                               ; preds = %91
  %98 = load ptr, ptr %29, align 8, !tbaa !21
  %99 = load ptr, ptr %28, align 8, !tbaa !17
  %100 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %101 = getelementptr inbounds nuw i8, ptr %0, i64 120
  %102 = getelementptr inbounds nuw i8, ptr %0, i64 104
  %103 = getelementptr inbounds nuw i8, ptr %0, i64 112
  %104 = getelementptr inbounds nuw i8, ptr %0, i64 48
  %105 = getelementptr inbounds nuw i8, ptr %5, i64 88
  %106 = getelementptr inbounds nuw i8, ptr %0, i64 56
  %107 = getelementptr inbounds nuw i8, ptr %0, i64 64
  br label %116

108:                                              ; preds = %108, %88
  %109 = phi i32 [ %89, %88 ], [ %113, %108 ]
  %110 = phi i64 [ 1, %88 ], [ %114, %108 ]
  %111 = getelementptr i32, ptr %18, i64 %110
  %112 = load i32, ptr %111, align 4, !tbaa !4
  %113 = add nsw i32 %112, %109
  store i32 %113, ptr %111, align 4, !tbaa !4
  %114 = add nuw i64 %110, 1
  %115 = icmp eq i64 %110, %15
  br i1 %115, label %90, label %108, !llvm.loop !27

116:                                              ; preds = %563, %97
  %117 = phi i64 [ %1, %97 ], [ %564, %563 ]
  %118 = phi ptr [ %8, %97 ], [ %551, %563 ]
  %119 = load i64, ptr %0, align 8, !tbaa !8
  %120 = add nsw i64 %119, %117
  %121 = getelementptr inbounds i32, ptr %99, i64 %120
  %122 = load i32, ptr %121, align 4, !tbaa !4
  %123 = sext i32 %122 to i64
  %124 = getelementptr inbounds i32, ptr %98, i64 %123
  %125 = getelementptr i8, ptr %121, i64 4
  %126 = load i32, ptr %125, align 4, !tbaa !4
  %127 = sub nsw i32 %126, %122
  call void @llvm.lifetime.start.p0(ptr nonnull %6) #6
  call void @llvm.lifetime.start.p0(ptr nonnull %7) #6
  %128 = icmp sgt i32 %127, 0
  br i1 %128, label %129, label %131

129:                                              ; preds = %116
  %130 = zext nneg i32 %127 to i64
  br label %138

131:                                              ; preds = %220, %116
  %132 = phi i64 [ %119, %116 ], [ %221, %220 ]
  %133 = phi i64 [ 0, %116 ], [ %157, %220 ]
  %134 = phi i64 [ 0, %116 ], [ %222, %220 ]
  %135 = getelementptr inbounds nuw i8, ptr %118, i64 4
  store i32 0, ptr %118, align 4, !tbaa !4
  %136 = load i32, ptr %124, align 4, !tbaa !4
  %137 = icmp slt i32 %136, 0
  br i1 %137, label %241, label %225

138:                                              ; preds = %220, %129
  %139 = phi i64 [ %119, %129 ], [ %221, %220 ]
  %140 = phi i64 [ 0, %129 ], [ %223, %220 ]
  %141 = phi i64 [ 0, %129 ], [ %222, %220 ]
  %142 = phi i64 [ 0, %129 ], [ %157, %220 ]
  %143 = getelementptr inbounds nuw i32, ptr %124, i64 %140
  %144 = load i32, ptr %143, align 4, !tbaa !4
  br label %145

145:                                              ; preds = %145, %138
  %146 = phi i64 [ %150, %145 ], [ 0, %138 ]
  %147 = getelementptr inbounds nuw i32, ptr %124, i64 %146
  %148 = load i32, ptr %147, align 4, !tbaa !4
  %149 = icmp eq i32 %148, %144
  %150 = add nuw nsw i64 %146, 1
  br i1 %149, label %151, label %145, !llvm.loop !28

151:                                              ; preds = %145
  %152 = getelementptr inbounds nuw i32, ptr %6, i64 %140
  %153 = trunc nuw nsw i64 %146 to i32
  store i32 %153, ptr %152, align 4, !tbaa !4
  %154 = icmp slt i32 %144, 0
  %155 = shl nuw i64 1, %146
  %156 = select i1 %154, i64 -9223372036854775808, i64 %155
  %157 = or i64 %156, %142
  %158 = and i64 %146, 4294967295
  %159 = icmp samesign ult i64 %158, %140
  %160 = or i1 %159, %154
  br i1 %160, label %220, label %161

161:                                              ; preds = %151
  %162 = zext nneg i32 %144 to i64
  %163 = getelementptr inbounds nuw i32, ptr %18, i64 %162
  %164 = load i32, ptr %163, align 4, !tbaa !4
  %165 = zext nneg i32 %144 to i64
  %166 = getelementptr i32, ptr %18, i64 %165
  %167 = getelementptr i8, ptr %166, i64 4
  %168 = load i32, ptr %167, align 4, !tbaa !4
  %169 = icmp slt i32 %164, %168
  br i1 %169, label %170, label %220

170:                                              ; preds = %161
  %171 = load ptr, ptr %30, align 8, !tbaa !22
  %172 = load ptr, ptr %100, align 8, !tbaa !29
  %173 = getelementptr inbounds i32, ptr %172, i64 %120
  %174 = shl nuw i64 1, %140
  %175 = sext i32 %164 to i64
  br label %176

176:                                              ; preds = %209, %170
  %177 = phi i64 [ %139, %170 ], [ %210, %209 ]
  %178 = phi i32 [ %144, %170 ], [ %211, %209 ]
  %179 = phi i64 [ %175, %170 ], [ %213, %209 ]
  %180 = phi i64 [ %141, %170 ], [ %212, %209 ]
  %181 = getelementptr inbounds i32, ptr %171, i64 %179
  %182 = load i32, ptr %181, align 4, !tbaa !4
  %183 = sext i32 %182 to i64
  %184 = getelementptr inbounds i32, ptr %172, i64 %183
  %185 = load i32, ptr %184, align 4, !tbaa !4
  %186 = load i32, ptr %173, align 4, !tbaa !4
  %187 = icmp eq i32 %185, %186
  br i1 %187, label %188, label %209

188:                                              ; preds = %176
  %189 = load ptr, ptr %101, align 8, !tbaa !30
  %190 = getelementptr inbounds i64, ptr %189, i64 %183
  %191 = load i64, ptr %190, align 8, !tbaa !31
  %192 = icmp eq i64 %191, 0
  br i1 %192, label %193, label %197

193:                                              ; preds = %188
  %194 = load ptr, ptr %102, align 8, !tbaa !32
  %195 = add nsw i64 %180, 1
  %196 = getelementptr inbounds i32, ptr %194, i64 %180
  store i32 %182, ptr %196, align 4, !tbaa !4
  br label %197

197:                                              ; preds = %193, %188
  %198 = phi i64 [ %180, %188 ], [ %195, %193 ]
  %199 = or i64 %191, %174
  store i64 %199, ptr %190, align 8, !tbaa !31
  %200 = load ptr, ptr %31, align 8, !tbaa !23
  %201 = getelementptr inbounds i32, ptr %200, i64 %179
  %202 = load i32, ptr %201, align 4, !tbaa !4
  %203 = load ptr, ptr %103, align 8, !tbaa !33
  %204 = load i64, ptr %0, align 8, !tbaa !8
  %205 = mul nsw i64 %204, %140
  %206 = getelementptr i32, ptr %203, i64 %205
  %207 = getelementptr i32, ptr %206, i64 %183
  store i32 %202, ptr %207, align 4, !tbaa !4
  %208 = load i32, ptr %143, align 4, !tbaa !4
  br label %209

209:                                              ; preds = %197, %176
  %210 = phi i64 [ %204, %197 ], [ %177, %176 ]
  %211 = phi i32 [ %208, %197 ], [ %178, %176 ]
  %212 = phi i64 [ %198, %197 ], [ %180, %176 ]
  %213 = add nsw i64 %179, 1
  %214 = sext i32 %211 to i64
  %215 = getelementptr i32, ptr %18, i64 %214
  %216 = getelementptr i8, ptr %215, i64 4
  %217 = load i32, ptr %216, align 4, !tbaa !4
  %218 = sext i32 %217 to i64
  %219 = icmp slt i64 %213, %218
  br i1 %219, label %176, label %220, !llvm.loop !34

220:                                              ; preds = %209, %161, %151
  %221 = phi i64 [ %139, %151 ], [ %139, %161 ], [ %210, %209 ]
  %222 = phi i64 [ %141, %151 ], [ %141, %161 ], [ %212, %209 ]
  %223 = add nuw nsw i64 %140, 1
  %224 = icmp eq i64 %223, %130
  br i1 %224, label %131, label %138, !llvm.loop !35

225:                                              ; preds = %131
  %226 = zext nneg i32 %136 to i64
  %227 = getelementptr inbounds nuw i32, ptr %18, i64 %226
  %228 = load i32, ptr %227, align 4, !tbaa !4
  %229 = sext i32 %228 to i64
  %230 = zext nneg i32 %127 to i64
  br label %231

231:                                              ; preds = %287, %225
  %232 = phi i32 [ %136, %225 ], [ %288, %287 ]
  %233 = phi i64 [ %229, %225 ], [ %290, %287 ]
  %234 = phi ptr [ %135, %225 ], [ %289, %287 ]
  %235 = zext nneg i32 %232 to i64
  %236 = getelementptr inbounds nuw i32, ptr %18, i64 %235
  %237 = getelementptr inbounds nuw i8, ptr %236, i64 4
  %238 = load i32, ptr %237, align 4, !tbaa !4
  %239 = sext i32 %238 to i64
  %240 = icmp slt i64 %233, %239
  br i1 %240, label %249, label %241

241:                                              ; preds = %287, %231, %131
  %242 = phi ptr [ %135, %131 ], [ %289, %287 ], [ %234, %231 ]
  %243 = sdiv i32 %127, 2
  %244 = icmp sgt i64 %134, 0
  %245 = getelementptr i32, ptr %99, i64 %117
  %246 = zext nneg i32 %127 to i64
  %247 = getelementptr i32, ptr %245, i64 %132
  %248 = getelementptr i8, ptr %247, i64 4
  br label %297

249:                                              ; preds = %231
  %250 = load ptr, ptr %30, align 8, !tbaa !22
  %251 = getelementptr inbounds i32, ptr %250, i64 %233
  %252 = load i32, ptr %251, align 4, !tbaa !4
  %253 = load ptr, ptr %101, align 8, !tbaa !30
  %254 = sext i32 %252 to i64
  %255 = getelementptr inbounds i64, ptr %253, i64 %254
  %256 = load i64, ptr %255, align 8, !tbaa !31
  %257 = icmp eq i64 %256, %133
  br i1 %257, label %258, label %287

258:                                              ; preds = %249
  %259 = load ptr, ptr %104, align 8, !tbaa !36
  %260 = getelementptr inbounds i32, ptr %259, i64 %254
  %261 = load i32, ptr %260, align 4, !tbaa !4
  %262 = getelementptr inbounds i32, ptr %259, i64 %120
  %263 = load i32, ptr %262, align 4, !tbaa !4
  %264 = icmp eq i32 %261, %263
  br i1 %264, label %287, label %265

265:                                              ; preds = %258
  store i32 %261, ptr %234, align 4, !tbaa !4
  %266 = getelementptr inbounds nuw i8, ptr %234, i64 4
  br i1 %128, label %267, label %270

267:                                              ; preds = %265
  %268 = load ptr, ptr %103, align 8, !tbaa !33
  %269 = getelementptr i32, ptr %268, i64 %254
  br label %275

270:                                              ; preds = %275, %265
  %271 = phi ptr [ %266, %265 ], [ %285, %275 ]
  %272 = load i32, ptr %118, align 4, !tbaa !4
  %273 = add nsw i32 %272, 1
  store i32 %273, ptr %118, align 4, !tbaa !4
  %274 = load i32, ptr %124, align 4, !tbaa !4
  br label %287

275:                                              ; preds = %275, %267
  %276 = phi i64 [ 0, %267 ], [ %284, %275 ]
  %277 = phi ptr [ %266, %267 ], [ %285, %275 ]
  %278 = getelementptr inbounds nuw i32, ptr %6, i64 %276
  %279 = load i32, ptr %278, align 4, !tbaa !4
  %280 = sext i32 %279 to i64
  %281 = mul nsw i64 %132, %280
  %282 = getelementptr i32, ptr %269, i64 %281
  %283 = load i32, ptr %282, align 4, !tbaa !4
  store i32 %283, ptr %277, align 4, !tbaa !4
  %284 = add nuw nsw i64 %276, 1
  %285 = getelementptr inbounds nuw i8, ptr %277, i64 4
  %286 = icmp eq i64 %284, %230
  br i1 %286, label %270, label %275, !llvm.loop !37

287:                                              ; preds = %270, %258, %249
  %288 = phi i32 [ %274, %270 ], [ %232, %258 ], [ %232, %249 ]
  %289 = phi ptr [ %271, %270 ], [ %234, %258 ], [ %234, %249 ]
  %290 = add nsw i64 %233, 1
  %291 = icmp sgt i32 %288, -1
  br i1 %291, label %231, label %241, !llvm.loop !38

292:                                              ; preds = %550
  %293 = icmp eq i64 %134, 0
  br i1 %293, label %563, label %294

294:                                              ; preds = %292
  %295 = load ptr, ptr %101, align 8, !tbaa !30
  %296 = load ptr, ptr %102, align 8, !tbaa !32
  br label %555

297:                                              ; preds = %550, %241
  %298 = phi i32 [ 0, %241 ], [ %553, %550 ]
  %299 = phi i32 [ %243, %241 ], [ %552, %550 ]
  %300 = phi ptr [ %242, %241 ], [ %551, %550 ]
  call void @llvm.lifetime.start.p0(ptr nonnull %5) #6
  br i1 %244, label %301, label %496

301:                                              ; preds = %297
  %302 = load ptr, ptr %102, align 8, !tbaa !32
  br label %307

303:                                              ; preds = %359
  %304 = icmp sgt i32 %360, 0
  br i1 %304, label %305, label %496

305:                                              ; preds = %303
  %306 = zext nneg i32 %360 to i64
  br label %363

307:                                              ; preds = %359, %301
  %308 = phi i32 [ 0, %301 ], [ %360, %359 ]
  %309 = phi i64 [ 0, %301 ], [ %361, %359 ]
  %310 = getelementptr inbounds nuw i32, ptr %302, i64 %309
  %311 = load i32, ptr %310, align 4, !tbaa !4
  %312 = sext i32 %311 to i64
  %313 = getelementptr i32, ptr %99, i64 %312
  %314 = getelementptr i8, ptr %313, i64 4
  %315 = load i32, ptr %314, align 4, !tbaa !4
  %316 = load i32, ptr %313, align 4, !tbaa !4
  %317 = sub nsw i32 %315, %316
  %318 = icmp eq i32 %317, %299
  br i1 %318, label %319, label %359

319:                                              ; preds = %307
  %320 = load ptr, ptr %101, align 8, !tbaa !30
  %321 = getelementptr inbounds i64, ptr %320, i64 %312
  %322 = load i64, ptr %321, align 8, !tbaa !31
  %323 = icmp eq i64 %322, %133
  br i1 %323, label %359, label %324

324:                                              ; preds = %319
  %325 = tail call range(i64 0, 65) i64 @llvm.ctpop.i64(i64 %322)
  %326 = trunc nuw nsw i64 %325 to i32
  %327 = sub nsw i32 %127, %326
  %328 = zext i32 %327 to i64
  %329 = tail call range(i64 0, 65) i64 @llvm.cttz.i64(i64 %322, i1 true)
  %330 = shl i64 %328, 38
  %331 = shl nuw nsw i64 %329, 32
  %332 = or disjoint i64 %330, %331
  %333 = or i64 %332, %312
  %334 = icmp slt i32 %308, 12
  %335 = zext i1 %334 to i32
  %336 = add nsw i32 %308, %335
  %337 = icmp sgt i32 %308, 11
  br i1 %337, label %338, label %341

338:                                              ; preds = %324
  %339 = load i64, ptr %105, align 8, !tbaa !31
  %340 = icmp sgt i64 %333, %339
  br i1 %340, label %359, label %343

341:                                              ; preds = %324
  %342 = icmp sgt i32 %308, 0
  br i1 %342, label %343, label %355

343:                                              ; preds = %341, %338
  %344 = phi i32 [ 11, %338 ], [ %308, %341 ]
  br label %345

345:                                              ; preds = %352, %343
  %346 = phi i32 [ %353, %352 ], [ %344, %343 ]
  %347 = zext nneg i32 %346 to i64
  %348 = getelementptr i64, ptr %5, i64 %347
  %349 = getelementptr i8, ptr %348, i64 -8
  %350 = load i64, ptr %349, align 8, !tbaa !31
  %351 = icmp sgt i64 %350, %333
  br i1 %351, label %352, label %355

352:                                              ; preds = %345
  store i64 %350, ptr %348, align 8, !tbaa !31
  %353 = add nsw i32 %346, -1
  %354 = icmp sgt i32 %346, 1
  br i1 %354, label %345, label %355, !llvm.loop !39

355:                                              ; preds = %352, %345, %341
  %356 = phi i32 [ %308, %341 ], [ %346, %345 ], [ 0, %352 ]
  %357 = sext i32 %356 to i64
  %358 = getelementptr inbounds i64, ptr %5, i64 %357
  store i64 %333, ptr %358, align 8, !tbaa !31
  br label %359

359:                                              ; preds = %355, %338, %319, %307
  %360 = phi i32 [ %308, %307 ], [ %308, %319 ], [ %336, %338 ], [ %336, %355 ]
  %361 = add nuw nsw i64 %309, 1
  %362 = icmp eq i64 %361, %134
  br i1 %362, label %303, label %307, !llvm.loop !40

363:                                              ; preds = %363, %305
  %364 = phi i64 [ 0, %305 ], [ %369, %363 ]
  %365 = getelementptr inbounds nuw i64, ptr %5, i64 %364
  %366 = load i64, ptr %365, align 8, !tbaa !31
  %367 = trunc i64 %366 to i32
  %368 = getelementptr inbounds nuw i32, ptr %7, i64 %364
  store i32 %367, ptr %368, align 4, !tbaa !4
  %369 = add nuw nsw i64 %364, 1
  %370 = icmp eq i64 %369, %306
  br i1 %370, label %371, label %363, !llvm.loop !41

371:                                              ; preds = %363
  call void @llvm.lifetime.end.p0(ptr nonnull %5) #6
  %372 = load i32, ptr %248, align 4, !tbaa !4
  %373 = load i32, ptr %247, align 4, !tbaa !4
  %374 = getelementptr inbounds nuw i8, ptr %300, i64 4
  store i32 0, ptr %300, align 4, !tbaa !4
  %375 = tail call i32 @llvm.umin.i32(i32 %360, i32 8)
  %376 = sub nsw i32 %372, %373
  %377 = icmp sgt i32 %376, 0
  %378 = zext nneg i32 %376 to i64
  %379 = zext nneg i32 %375 to i64
  br label %380

380:                                              ; preds = %394, %371
  %381 = phi i32 [ 0, %371 ], [ %395, %394 ]
  %382 = phi i64 [ 0, %371 ], [ %385, %394 ]
  %383 = phi i64 [ 1, %371 ], [ %397, %394 ]
  %384 = phi ptr [ %374, %371 ], [ %396, %394 ]
  %385 = add nuw nsw i64 %382, 1
  %386 = icmp samesign ult i64 %385, %306
  br i1 %386, label %387, label %394

387:                                              ; preds = %380
  %388 = getelementptr inbounds nuw i32, ptr %7, i64 %382
  br label %389

389:                                              ; preds = %491, %387
  %390 = phi i32 [ %381, %387 ], [ %492, %491 ]
  %391 = phi i64 [ %383, %387 ], [ %494, %491 ]
  %392 = phi ptr [ %384, %387 ], [ %493, %491 ]
  %393 = icmp slt i32 %390, 4
  br i1 %393, label %399, label %394

394:                                              ; preds = %491, %389, %380
  %395 = phi i32 [ %381, %380 ], [ %390, %389 ], [ %492, %491 ]
  %396 = phi ptr [ %384, %380 ], [ %392, %389 ], [ %493, %491 ]
  %397 = add nuw nsw i64 %383, 1
  %398 = icmp eq i64 %385, %379
  br i1 %398, label %499, label %380, !llvm.loop !42

399:                                              ; preds = %389
  %400 = load i32, ptr %388, align 4, !tbaa !4
  %401 = getelementptr inbounds nuw i32, ptr %7, i64 %391
  %402 = load i32, ptr %401, align 4, !tbaa !4
  %403 = load ptr, ptr %101, align 8, !tbaa !30
  %404 = sext i32 %400 to i64
  %405 = getelementptr inbounds i64, ptr %403, i64 %404
  %406 = load i64, ptr %405, align 8, !tbaa !31
  %407 = sext i32 %402 to i64
  %408 = getelementptr inbounds i64, ptr %403, i64 %407
  %409 = load i64, ptr %408, align 8, !tbaa !31
  %410 = or i64 %409, %406
  %411 = icmp eq i64 %410, %133
  br i1 %411, label %412, label %491

412:                                              ; preds = %399
  %413 = load ptr, ptr %106, align 8, !tbaa !43
  %414 = getelementptr inbounds i32, ptr %413, i64 %117
  %415 = load i32, ptr %414, align 4, !tbaa !4
  %416 = icmp eq i32 %400, %415
  br i1 %416, label %417, label %422

417:                                              ; preds = %412
  %418 = load ptr, ptr %107, align 8, !tbaa !44
  %419 = getelementptr inbounds i32, ptr %418, i64 %117
  %420 = load i32, ptr %419, align 4, !tbaa !4
  %421 = icmp eq i32 %402, %420
  br i1 %421, label %491, label %422

422:                                              ; preds = %417, %412
  %423 = load ptr, ptr %104, align 8, !tbaa !36
  %424 = getelementptr inbounds i32, ptr %423, i64 %404
  %425 = load i32, ptr %424, align 4, !tbaa !4
  %426 = getelementptr inbounds nuw i8, ptr %392, i64 4
  store i32 %425, ptr %392, align 4, !tbaa !4
  %427 = getelementptr inbounds i32, ptr %423, i64 %407
  %428 = load i32, ptr %427, align 4, !tbaa !4
  %429 = getelementptr inbounds nuw i8, ptr %392, i64 8
  store i32 %428, ptr %426, align 4, !tbaa !4
  %430 = load i32, ptr %247, align 4, !tbaa !4
  %431 = sext i32 %430 to i64
  %432 = getelementptr inbounds i32, ptr %98, i64 %431
  %433 = getelementptr i32, ptr %99, i64 %404
  %434 = getelementptr i8, ptr %433, i64 4
  %435 = load i32, ptr %434, align 4, !tbaa !4
  %436 = load i32, ptr %433, align 4, !tbaa !4
  %437 = sub nsw i32 %435, %436
  br i1 %377, label %438, label %487

438:                                              ; preds = %422
  %439 = getelementptr inbounds i32, ptr %99, i64 %407
  %440 = sext i32 %437 to i64
  br label %441

441:                                              ; preds = %482, %438
  %442 = phi i64 [ 0, %438 ], [ %485, %482 ]
  %443 = phi ptr [ %429, %438 ], [ %484, %482 ]
  %444 = getelementptr inbounds nuw i32, ptr %6, i64 %442
  %445 = load i32, ptr %444, align 4, !tbaa !4
  %446 = sext i32 %445 to i64
  %447 = mul nsw i64 %132, %446
  %448 = icmp slt i64 %442, %440
  br i1 %448, label %449, label %468

449:                                              ; preds = %441
  %450 = load i32, ptr %433, align 4, !tbaa !4
  %451 = trunc nuw nsw i64 %442 to i32
  %452 = add nsw i32 %450, %451
  %453 = sext i32 %452 to i64
  %454 = getelementptr inbounds i32, ptr %98, i64 %453
  %455 = load i32, ptr %454, align 4, !tbaa !4
  %456 = getelementptr inbounds nuw i32, ptr %432, i64 %442
  %457 = load i32, ptr %456, align 4, !tbaa !4
  %458 = icmp eq i32 %455, %457
  br i1 %458, label %482, label %459

459:                                              ; preds = %449
  %460 = load i32, ptr %439, align 4, !tbaa !4
  %461 = add nsw i32 %460, %451
  %462 = sext i32 %461 to i64
  %463 = getelementptr inbounds i32, ptr %98, i64 %462
  %464 = load i32, ptr %463, align 4, !tbaa !4
  %465 = icmp eq i32 %464, %457
  br i1 %465, label %466, label %468

466:                                              ; preds = %459
  %467 = add nsw i32 %437, %451
  br label %482

468:                                              ; preds = %459, %441
  %469 = zext nneg i32 %445 to i64
  %470 = shl nuw i64 1, %469
  %471 = and i64 %470, %406
  %472 = icmp eq i64 %471, 0
  %473 = load ptr, ptr %103, align 8, !tbaa !33
  %474 = getelementptr i32, ptr %473, i64 %447
  br i1 %472, label %478, label %475

475:                                              ; preds = %468
  %476 = getelementptr i32, ptr %474, i64 %404
  %477 = load i32, ptr %476, align 4, !tbaa !4
  br label %482

478:                                              ; preds = %468
  %479 = getelementptr i32, ptr %474, i64 %407
  %480 = load i32, ptr %479, align 4, !tbaa !4
  %481 = add nsw i32 %480, %437
  br label %482

482:                                              ; preds = %478, %475, %466, %449
  %483 = phi i32 [ %467, %466 ], [ %451, %449 ], [ %477, %475 ], [ %481, %478 ]
  store i32 %483, ptr %443, align 4, !tbaa !4
  %484 = getelementptr inbounds nuw i8, ptr %443, i64 4
  %485 = add nuw nsw i64 %442, 1
  %486 = icmp eq i64 %485, %378
  br i1 %486, label %487, label %441, !llvm.loop !45

487:                                              ; preds = %482, %422
  %488 = phi ptr [ %429, %422 ], [ %484, %482 ]
  %489 = load i32, ptr %300, align 4, !tbaa !4
  %490 = add nsw i32 %489, 1
  store i32 %490, ptr %300, align 4, !tbaa !4
  br label %491

491:                                              ; preds = %487, %417, %399
  %492 = phi i32 [ %490, %487 ], [ %390, %399 ], [ %390, %417 ]
  %493 = phi ptr [ %488, %487 ], [ %392, %399 ], [ %392, %417 ]
  %494 = add nuw nsw i64 %391, 1
  %495 = icmp eq i64 %494, %306
  br i1 %495, label %394, label %389, !llvm.loop !46

496:                                              ; preds = %303, %297
  call void @llvm.lifetime.end.p0(ptr nonnull %5) #6
  %497 = getelementptr inbounds nuw i8, ptr %300, i64 4
  store i32 0, ptr %300, align 4, !tbaa !4
  %498 = icmp eq i32 %299, %127
  br i1 %498, label %503, label %550

499:                                              ; preds = %394
  %500 = icmp eq i32 %299, %127
  br i1 %500, label %501, label %550

501:                                              ; preds = %499
  %502 = getelementptr inbounds nuw i8, ptr %396, i64 4
  store i32 0, ptr %396, align 4, !tbaa !4
  br label %505

503:                                              ; preds = %496
  %504 = getelementptr inbounds nuw i8, ptr %300, i64 8
  store i32 0, ptr %497, align 4, !tbaa !4
  br label %550

505:                                              ; preds = %546, %501
  %506 = phi i64 [ 0, %501 ], [ %548, %546 ]
  %507 = phi ptr [ %502, %501 ], [ %547, %546 ]
  br i1 %128, label %508, label %516

508:                                              ; preds = %505
  %509 = getelementptr inbounds nuw i32, ptr %7, i64 %506
  %510 = load i32, ptr %509, align 4, !tbaa !4
  %511 = sext i32 %510 to i64
  %512 = getelementptr inbounds i32, ptr %99, i64 %511
  %513 = load i32, ptr %512, align 4, !tbaa !4
  %514 = sext i32 %513 to i64
  %515 = getelementptr i32, ptr %98, i64 %514
  br label %521

516:                                              ; preds = %521, %505
  %517 = phi i32 [ 0, %505 ], [ %532, %521 ]
  %518 = tail call range(i32 0, 33) i32 @llvm.ctpop.i32(i32 %517)
  %519 = shl nuw nsw i32 %518, 1
  %520 = icmp sgt i32 %519, %127
  br i1 %520, label %546, label %535

521:                                              ; preds = %521, %508
  %522 = phi i64 [ 0, %508 ], [ %533, %521 ]
  %523 = phi i32 [ 0, %508 ], [ %532, %521 ]
  %524 = getelementptr i32, ptr %515, i64 %522
  %525 = load i32, ptr %524, align 4, !tbaa !4
  %526 = getelementptr inbounds nuw i32, ptr %124, i64 %522
  %527 = load i32, ptr %526, align 4, !tbaa !4
  %528 = icmp ne i32 %525, %527
  %529 = zext i1 %528 to i32
  %530 = trunc nuw nsw i64 %522 to i32
  %531 = shl nuw i32 %529, %530
  %532 = or i32 %531, %523
  %533 = add nuw nsw i64 %522, 1
  %534 = icmp eq i64 %533, %246
  br i1 %534, label %516, label %521, !llvm.loop !47

535:                                              ; preds = %516
  %536 = load ptr, ptr %104, align 8, !tbaa !36
  %537 = getelementptr inbounds nuw i32, ptr %7, i64 %506
  %538 = load i32, ptr %537, align 4, !tbaa !4
  %539 = sext i32 %538 to i64
  %540 = getelementptr inbounds i32, ptr %536, i64 %539
  %541 = load i32, ptr %540, align 4, !tbaa !4
  %542 = getelementptr inbounds nuw i8, ptr %507, i64 4
  store i32 %541, ptr %507, align 4, !tbaa !4
  %543 = getelementptr inbounds nuw i8, ptr %507, i64 8
  store i32 %517, ptr %542, align 4, !tbaa !4
  %544 = load i32, ptr %396, align 4, !tbaa !4
  %545 = add nsw i32 %544, 1
  store i32 %545, ptr %396, align 4, !tbaa !4
  br label %546

546:                                              ; preds = %535, %516
  %547 = phi ptr [ %543, %535 ], [ %507, %516 ]
  %548 = add nuw nsw i64 %506, 1
  %549 = icmp eq i64 %548, %306
  br i1 %549, label %550, label %505, !llvm.loop !48

550:                                              ; preds = %546, %503, %499, %496
  %551 = phi ptr [ %396, %499 ], [ %497, %496 ], [ %504, %503 ], [ %547, %546 ]
  %552 = shl nsw i32 %299, 1
  %553 = add nuw nsw i32 %298, 1
  %554 = icmp eq i32 %553, 4
  br i1 %554, label %292, label %297, !llvm.loop !49

555:                                              ; preds = %555, %294
  %556 = phi i64 [ %134, %294 ], [ %557, %555 ]
  %557 = add nsw i64 %556, -1
  %558 = getelementptr inbounds i32, ptr %296, i64 %557
  %559 = load i32, ptr %558, align 4, !tbaa !4
  %560 = sext i32 %559 to i64
  %561 = getelementptr inbounds i64, ptr %295, i64 %560
  store i64 0, ptr %561, align 8, !tbaa !31
  %562 = icmp eq i64 %557, 0
  br i1 %562, label %563, label %555, !llvm.loop !50

563:                                              ; preds = %555, %292
  call void @llvm.lifetime.end.p0(ptr nonnull %7) #6
  call void @llvm.lifetime.end.p0(ptr nonnull %6) #6
  %564 = add nsw i64 %117, 1
  %565 = load i64, ptr %92, align 8, !tbaa !26
  %566 = icmp slt i64 %564, %565
  %567 = icmp ult ptr %551, %13
  %568 = select i1 %566, i1 %567, i1 false
  br i1 %568, label %116, label %569, !llvm.loop !51

569:                                              ; preds = %563, %91
  %570 = phi ptr [ %8, %91 ], [ %551, %563 ]
  %571 = phi i64 [ %1, %91 ], [ %564, %563 ]
  %572 = ptrtoint ptr %570 to i64
  %573 = ptrtoint ptr %2 to i64
  %574 = sub i64 %572, %573
  %575 = lshr exact i64 %574, 2
  %576 = trunc i64 %575 to i32
  store i32 %576, ptr %2, align 4, !tbaa !4
  ret i64 %571
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
