; ModuleID = '<string>'
source_filename = "<string>"

; Function Attrs: nofree norecurse nosync nounwind memory(argmem: readwrite, inaccessiblemem: readwrite) uwtable
define dso_local void @rotate(ptr noalias noundef writeonly captures(none) %arg, ptr noalias noundef readonly captures(none) %arg39, ptr noalias noundef readonly captures(none) %arg40, ptr noalias noundef readonly captures(none) %arg41, ptr noalias noundef readonly captures(none) %arg42, ptr noalias noundef readonly captures(none) %arg43, ptr noalias noundef readonly captures(none) %arg44, i64 noundef %arg45, float noundef %arg46) local_unnamed_addr #0 {
bb:
  %i = load i64, ptr %arg42, align 8, !tbaa !8
  %i47 = icmp sgt i64 %i, 0
  br i1 %i47, label %bb48, label %.loopexit

bb48:                                             ; preds = %bb
  %i49 = getelementptr inbounds nuw i8, ptr %arg42, i64 8
  %i50 = load i64, ptr %i49, align 8, !tbaa !8
  %i51 = icmp sgt i64 %i50, 0
  %i52 = getelementptr inbounds nuw i8, ptr %arg44, i64 8
  %i53 = getelementptr inbounds nuw i8, ptr %arg44, i64 16
  %i54 = getelementptr inbounds nuw i8, ptr %arg43, i64 8
  %i55 = getelementptr inbounds nuw i8, ptr %arg43, i64 16
  %i56 = getelementptr inbounds nuw i8, ptr %arg42, i64 24
  br i1 %i51, label %bb57, label %.loopexit

bb57:                                             ; preds = %bb48
  %i58 = getelementptr inbounds nuw i8, ptr %arg42, i64 16
  %i59 = load i64, ptr %i58, align 8, !tbaa !8
  %i60 = icmp sgt i64 %i59, 0
  br i1 %i60, label %bb61, label %.loopexit

bb61:                                             ; preds = %bb57
  %i62 = load i64, ptr %arg44, align 8, !tbaa !8
  %i63 = load i64, ptr %i52, align 8, !tbaa !8
  %i64 = load i64, ptr %i53, align 8, !tbaa !8
  %i65 = load i64, ptr %arg43, align 8, !tbaa !8
  %i66 = load i64, ptr %i54, align 8, !tbaa !8
  %i67 = load i64, ptr %i55, align 8, !tbaa !8
  %i68 = load i64, ptr %i56, align 8, !tbaa !8
  %i69 = icmp slt i64 %i68, 8
  %i70 = shl i64 %i68, 2
  %i71 = add i64 %i68, -8
  %i72 = lshr i64 %i71, 3
  br i1 %i69, label %bb79, label %bb73

bb73:                                             ; preds = %bb61
  %i74 = and i64 %i71, -8
  %i75 = add nsw i64 %i68, -9
  %i76 = and i64 %i68, 1
  %i77 = icmp eq i64 %i76, 0
  %i78 = icmp eq i64 %i75, %i74
  %lane10_0 = insertelement <8 x float> poison, float %arg46, i64 0
  %lane10_1 = shufflevector <8 x float> %lane10_0, <8 x float> poison, <8 x i32> zeroinitializer
  %lane11_0 = insertelement <2 x float> poison, float %arg46, i64 0
  %lane11_1 = shufflevector <2 x float> %lane11_0, <2 x float> poison, <2 x i32> zeroinitializer
  br label %bb278

bb79:                                             ; preds = %bb61
  %i80 = icmp sgt i64 %i68, 0
  br i1 %i80, label %bb81, label %.loopexit

bb81:                                             ; preds = %bb79
  %i83 = add nuw nsw i64 %i68, 1
  %i85 = add nuw nsw i64 %i68, 2
  %i86 = icmp eq i64 %i68, 3
  %i87 = add nuw nsw i64 %i68, 3
  %i88 = icmp eq i64 %i68, 4
  %i89 = add nuw nsw i64 %i68, 4
  %i90 = icmp eq i64 %i68, 5
  %i91 = add nuw nsw i64 %i68, 5
  %i92 = icmp eq i64 %i68, 6
  %i93 = add nuw nsw i64 %i68, 6
  switch i64 %i68, label %.split15 [
    i64 1, label %.split15.us.us
    i64 2, label %.split15.us.preheader
  ]

.split15.us.preheader:                            ; preds = %bb81
  %i24 = insertelement <2 x float> poison, float %arg46, i64 0
  %i25 = shufflevector <2 x float> %i24, <2 x float> poison, <2 x i32> zeroinitializer
  br label %.split15.us

.split15.us:                                      ; preds = %.split17.split.us.us, %.split15.us.preheader
  %i132.us = phi i64 [ %i276.us, %.split17.split.us.us ], [ 0, %.split15.us.preheader ]
  %i133.us = mul nsw i64 %i132.us, %i62
  %i134.us = getelementptr inbounds float, ptr %arg, i64 %i133.us
  %i135.us = mul nsw i64 %i132.us, %i65
  %i136.us = getelementptr inbounds float, ptr %arg39, i64 %i135.us
  br label %.split.us.us

.split.us.us:                                     ; preds = %.split14.split.us.us.us, %.split15.us
  %i137.us.us = phi i64 [ 0, %.split15.us ], [ %i274.us.us, %.split14.split.us.us.us ]
  %i138.us.us = mul nsw i64 %i137.us.us, %i63
  %i139.us.us = getelementptr inbounds float, ptr %i134.us, i64 %i138.us.us
  %i140.us.us = mul nsw i64 %i137.us.us, %i66
  %i141.us.us = getelementptr inbounds float, ptr %i136.us, i64 %i140.us.us
  br label %bb142.us.us.us

bb142.us.us.us:                                   ; preds = %bb142.us.us.us, %.split.us.us
  %i143.us.us.us = phi i64 [ 0, %.split.us.us ], [ %i272.us.us.us, %bb142.us.us.us ]
  %i144.us.us.us = mul nsw i64 %i143.us.us.us, %i64
  %i145.us.us.us = getelementptr inbounds float, ptr %i139.us.us, i64 %i144.us.us.us
  %i146.us.us.us = mul nsw i64 %i143.us.us.us, %i67
  %i147.us.us.us = getelementptr inbounds float, ptr %i141.us.us, i64 %i146.us.us.us
  %i148.us.us.us = mul nsw i64 %i143.us.us.us, %arg45
  %i149.us.us.us = getelementptr inbounds float, ptr %arg40, i64 %i148.us.us.us
  %i150.us.us.us = getelementptr inbounds float, ptr %arg41, i64 %i148.us.us.us
  tail call void @llvm.experimental.noalias.scope.decl(metadata !10)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !13)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !15)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !17)
  %i152.us.us.us = getelementptr inbounds nuw i8, ptr %i147.us.us.us, i64 8
  %i153.us.us.us = load float, ptr %i152.us.us.us, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i163.us.us.us = getelementptr inbounds nuw i8, ptr %i145.us.us.us, i64 8
  %i166.us.us.us = getelementptr inbounds nuw float, ptr %i147.us.us.us, i64 %i83
  %i167.us.us.us = load float, ptr %i166.us.us.us, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i26 = load <2 x float>, ptr %i149.us.us.us, align 4, !tbaa !19, !alias.scope !15, !noalias !22
  %i27 = extractelement <2 x float> %i26, i64 0
  %i160.us.us.us = fmul float %i153.us.us.us, %i27
  %i28 = load <2 x float>, ptr %i147.us.us.us, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i29 = load <2 x float>, ptr %i150.us.us.us, align 4, !tbaa !19, !alias.scope !17, !noalias !23
  %i30 = fmul <2 x float> %i25, %i29
  %foldExtExtBinop = fmul <2 x float> %i28, %i30
  %i161.us.us.us = extractelement <2 x float> %foldExtExtBinop, i64 0
  %i162.us.us.us = fadd float %i160.us.us.us, %i161.us.us.us
  store float %i162.us.us.us, ptr %i163.us.us.us, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i31 = fmul <2 x float> %i28, %i26
  %i32 = insertelement <2 x float> poison, float %i153.us.us.us, i64 0
  %i33 = insertelement <2 x float> %i32, float %i167.us.us.us, i64 1
  %i34 = fmul <2 x float> %i33, %i30
  %i35 = fsub <2 x float> %i31, %i34
  store <2 x float> %i35, ptr %i145.us.us.us, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i36 = extractelement <2 x float> %i26, i64 1
  %i177.us.us.us = fmul float %i167.us.us.us, %i36
  %foldExtExtBinop13 = fmul <2 x float> %i28, %i30
  %i178.us.us.us = extractelement <2 x float> %foldExtExtBinop13, i64 1
  %i179.us.us.us = fadd float %i177.us.us.us, %i178.us.us.us
  %i180.us.us.us = getelementptr inbounds nuw float, ptr %i145.us.us.us, i64 %i83
  store float %i179.us.us.us, ptr %i180.us.us.us, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i272.us.us.us = add nuw nsw i64 %i143.us.us.us, 1
  %i273.us.us.us = icmp eq i64 %i272.us.us.us, %i59
  br i1 %i273.us.us.us, label %.split14.split.us.us.us, label %bb142.us.us.us, !llvm.loop !25

.split14.split.us.us.us:                          ; preds = %bb142.us.us.us
  %i274.us.us = add nuw nsw i64 %i137.us.us, 1
  %i275.us.us = icmp eq i64 %i274.us.us, %i50
  br i1 %i275.us.us, label %.split17.split.us.us, label %.split.us.us, !llvm.loop !27

.split17.split.us.us:                             ; preds = %.split14.split.us.us.us
  %i276.us = add nuw nsw i64 %i132.us, 1
  %i277.us = icmp eq i64 %i276.us, %i
  br i1 %i277.us, label %.loopexit, label %.split15.us, !llvm.loop !28

.split15.us.us:                                   ; preds = %.split17.us.us, %bb81
  %i94 = phi i64 [ %i130, %.split17.us.us ], [ 0, %bb81 ]
  %i95 = mul nsw i64 %i94, %i62
  %i96 = getelementptr inbounds float, ptr %arg, i64 %i95
  %i97 = mul nsw i64 %i94, %i65
  %i98 = getelementptr inbounds float, ptr %arg39, i64 %i97
  br label %.split.us.us.us

.split.us.us.us:                                  ; preds = %.split14.us.us.us, %.split15.us.us
  %i99 = phi i64 [ 0, %.split15.us.us ], [ %i128, %.split14.us.us.us ]
  %i100 = mul nsw i64 %i99, %i63
  %i101 = getelementptr inbounds float, ptr %i96, i64 %i100
  %i102 = mul nsw i64 %i99, %i66
  %i103 = getelementptr inbounds float, ptr %i98, i64 %i102
  br label %bb104

bb104:                                            ; preds = %bb104, %.split.us.us.us
  %i105 = phi i64 [ 0, %.split.us.us.us ], [ %i126, %bb104 ]
  %i106 = mul nsw i64 %i105, %i64
  %i107 = getelementptr inbounds float, ptr %i101, i64 %i106
  %i108 = mul nsw i64 %i105, %i67
  %i109 = getelementptr inbounds float, ptr %i103, i64 %i108
  %i110 = mul nsw i64 %i105, %arg45
  %i111 = getelementptr inbounds float, ptr %arg40, i64 %i110
  %i112 = getelementptr inbounds float, ptr %arg41, i64 %i110
  tail call void @llvm.experimental.noalias.scope.decl(metadata !10)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !13)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !15)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !17)
  %i113 = load float, ptr %i109, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i114 = getelementptr inbounds nuw i8, ptr %i109, i64 4
  %i115 = load float, ptr %i114, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i116 = load float, ptr %i112, align 4, !tbaa !19, !alias.scope !17, !noalias !23
  %i117 = fmul float %arg46, %i116
  %i118 = load float, ptr %i111, align 4, !tbaa !19, !alias.scope !15, !noalias !22
  %i119 = fmul float %i113, %i118
  %i120 = fmul float %i115, %i117
  %i121 = fsub float %i119, %i120
  store float %i121, ptr %i107, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i122 = fmul float %i115, %i118
  %i123 = fmul float %i113, %i117
  %i124 = fadd float %i122, %i123
  %i125 = getelementptr inbounds nuw i8, ptr %i107, i64 4
  store float %i124, ptr %i125, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i126 = add nuw nsw i64 %i105, 1
  %i127 = icmp eq i64 %i126, %i59
  br i1 %i127, label %.split14.us.us.us, label %bb104, !llvm.loop !25

.split14.us.us.us:                                ; preds = %bb104
  %i128 = add nuw nsw i64 %i99, 1
  %i129 = icmp eq i64 %i128, %i50
  br i1 %i129, label %.split17.us.us, label %.split.us.us.us, !llvm.loop !27

.split17.us.us:                                   ; preds = %.split14.us.us.us
  %i130 = add nuw nsw i64 %i94, 1
  %i131 = icmp eq i64 %i130, %i
  br i1 %i131, label %.loopexit, label %.split15.us.us, !llvm.loop !28

.split15:                                         ; preds = %.split17.split, %bb81
  %i132 = phi i64 [ %i276, %.split17.split ], [ 0, %bb81 ]
  %i133 = mul nsw i64 %i132, %i62
  %i134 = getelementptr inbounds float, ptr %arg, i64 %i133
  %i135 = mul nsw i64 %i132, %i65
  %i136 = getelementptr inbounds float, ptr %arg39, i64 %i135
  br label %.split

.split:                                           ; preds = %.split14.split, %.split15
  %i137 = phi i64 [ 0, %.split15 ], [ %i274, %.split14.split ]
  %i138 = mul nsw i64 %i137, %i63
  %i139 = getelementptr inbounds float, ptr %i134, i64 %i138
  %i140 = mul nsw i64 %i137, %i66
  %i141 = getelementptr inbounds float, ptr %i136, i64 %i140
  br label %bb142

bb142:                                            ; preds = %bb271, %.split
  %i143 = phi i64 [ 0, %.split ], [ %i272, %bb271 ]
  %i144 = mul nsw i64 %i143, %i64
  %i145 = getelementptr inbounds float, ptr %i139, i64 %i144
  %i146 = mul nsw i64 %i143, %i67
  %i147 = getelementptr inbounds float, ptr %i141, i64 %i146
  %i148 = mul nsw i64 %i143, %arg45
  %i149 = getelementptr inbounds float, ptr %arg40, i64 %i148
  %i150 = getelementptr inbounds float, ptr %arg41, i64 %i148
  tail call void @llvm.experimental.noalias.scope.decl(metadata !10)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !13)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !15)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !17)
  %i151 = load float, ptr %i147, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i152 = getelementptr inbounds nuw float, ptr %i147, i64 %i68
  %i153 = load float, ptr %i152, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i154 = load float, ptr %i150, align 4, !tbaa !19, !alias.scope !17, !noalias !23
  %i155 = fmul float %arg46, %i154
  %i156 = load float, ptr %i149, align 4, !tbaa !19, !alias.scope !15, !noalias !22
  %i157 = fmul float %i151, %i156
  %i158 = fmul float %i153, %i155
  %i159 = fsub float %i157, %i158
  store float %i159, ptr %i145, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i160 = fmul float %i153, %i156
  %i161 = fmul float %i151, %i155
  %i162 = fadd float %i160, %i161
  %i163 = getelementptr inbounds nuw float, ptr %i145, i64 %i68
  store float %i162, ptr %i163, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i164 = getelementptr inbounds nuw i8, ptr %i147, i64 4
  %i165 = load float, ptr %i164, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i166 = getelementptr inbounds nuw float, ptr %i147, i64 %i83
  %i167 = load float, ptr %i166, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i168 = getelementptr inbounds nuw i8, ptr %i150, i64 4
  %i169 = load float, ptr %i168, align 4, !tbaa !19, !alias.scope !17, !noalias !23
  %i170 = fmul float %arg46, %i169
  %i171 = getelementptr inbounds nuw i8, ptr %i149, i64 4
  %i172 = load float, ptr %i171, align 4, !tbaa !19, !alias.scope !15, !noalias !22
  %i173 = fmul float %i165, %i172
  %i174 = fmul float %i167, %i170
  %i175 = fsub float %i173, %i174
  %i176 = getelementptr inbounds nuw i8, ptr %i145, i64 4
  store float %i175, ptr %i176, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i177 = fmul float %i167, %i172
  %i178 = fmul float %i165, %i170
  %i179 = fadd float %i177, %i178
  %i180 = getelementptr inbounds nuw float, ptr %i145, i64 %i83
  store float %i179, ptr %i180, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i182 = getelementptr inbounds nuw i8, ptr %i147, i64 8
  %i183 = load float, ptr %i182, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i184 = getelementptr inbounds nuw float, ptr %i147, i64 %i85
  %i185 = load float, ptr %i184, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i186 = getelementptr inbounds nuw i8, ptr %i150, i64 8
  %i187 = load float, ptr %i186, align 4, !tbaa !19, !alias.scope !17, !noalias !23
  %i188 = fmul float %arg46, %i187
  %i189 = getelementptr inbounds nuw i8, ptr %i149, i64 8
  %i190 = load float, ptr %i189, align 4, !tbaa !19, !alias.scope !15, !noalias !22
  %i191 = fmul float %i183, %i190
  %i192 = fmul float %i185, %i188
  %i193 = fsub float %i191, %i192
  %i194 = getelementptr inbounds nuw i8, ptr %i145, i64 8
  store float %i193, ptr %i194, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i195 = fmul float %i185, %i190
  %i196 = fmul float %i183, %i188
  %i197 = fadd float %i195, %i196
  %i198 = getelementptr inbounds nuw float, ptr %i145, i64 %i85
  store float %i197, ptr %i198, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  br i1 %i86, label %bb271, label %bb199, !llvm.loop !29

bb199:                                            ; preds = %bb142
  %i200 = getelementptr inbounds nuw i8, ptr %i147, i64 12
  %i201 = load float, ptr %i200, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i202 = getelementptr inbounds nuw float, ptr %i147, i64 %i87
  %i203 = load float, ptr %i202, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i204 = getelementptr inbounds nuw i8, ptr %i150, i64 12
  %i205 = load float, ptr %i204, align 4, !tbaa !19, !alias.scope !17, !noalias !23
  %i206 = fmul float %arg46, %i205
  %i207 = getelementptr inbounds nuw i8, ptr %i149, i64 12
  %i208 = load float, ptr %i207, align 4, !tbaa !19, !alias.scope !15, !noalias !22
  %i209 = fmul float %i201, %i208
  %i210 = fmul float %i203, %i206
  %i211 = fsub float %i209, %i210
  %i212 = getelementptr inbounds nuw i8, ptr %i145, i64 12
  store float %i211, ptr %i212, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i213 = fmul float %i203, %i208
  %i214 = fmul float %i201, %i206
  %i215 = fadd float %i213, %i214
  %i216 = getelementptr inbounds nuw float, ptr %i145, i64 %i87
  store float %i215, ptr %i216, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  br i1 %i88, label %bb271, label %bb217, !llvm.loop !29

bb217:                                            ; preds = %bb199
  %i218 = getelementptr inbounds nuw i8, ptr %i147, i64 16
  %i219 = load float, ptr %i218, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i220 = getelementptr inbounds nuw float, ptr %i147, i64 %i89
  %i221 = load float, ptr %i220, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i222 = getelementptr inbounds nuw i8, ptr %i150, i64 16
  %i223 = load float, ptr %i222, align 4, !tbaa !19, !alias.scope !17, !noalias !23
  %i224 = fmul float %arg46, %i223
  %i225 = getelementptr inbounds nuw i8, ptr %i149, i64 16
  %i226 = load float, ptr %i225, align 4, !tbaa !19, !alias.scope !15, !noalias !22
  %i227 = fmul float %i219, %i226
  %i228 = fmul float %i221, %i224
  %i229 = fsub float %i227, %i228
  %i230 = getelementptr inbounds nuw i8, ptr %i145, i64 16
  store float %i229, ptr %i230, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i231 = fmul float %i221, %i226
  %i232 = fmul float %i219, %i224
  %i233 = fadd float %i231, %i232
  %i234 = getelementptr inbounds nuw float, ptr %i145, i64 %i89
  store float %i233, ptr %i234, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  br i1 %i90, label %bb271, label %bb235, !llvm.loop !29

bb235:                                            ; preds = %bb217
  %i236 = getelementptr inbounds nuw i8, ptr %i147, i64 20
  %i237 = load float, ptr %i236, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i238 = getelementptr inbounds nuw float, ptr %i147, i64 %i91
  %i239 = load float, ptr %i238, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i240 = getelementptr inbounds nuw i8, ptr %i150, i64 20
  %i241 = load float, ptr %i240, align 4, !tbaa !19, !alias.scope !17, !noalias !23
  %i242 = fmul float %arg46, %i241
  %i243 = getelementptr inbounds nuw i8, ptr %i149, i64 20
  %i244 = load float, ptr %i243, align 4, !tbaa !19, !alias.scope !15, !noalias !22
  %i245 = fmul float %i237, %i244
  %i246 = fmul float %i239, %i242
  %i247 = fsub float %i245, %i246
  %i248 = getelementptr inbounds nuw i8, ptr %i145, i64 20
  store float %i247, ptr %i248, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i249 = fmul float %i239, %i244
  %i250 = fmul float %i237, %i242
  %i251 = fadd float %i249, %i250
  %i252 = getelementptr inbounds nuw float, ptr %i145, i64 %i91
  store float %i251, ptr %i252, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  br i1 %i92, label %bb271, label %bb253, !llvm.loop !29

bb253:                                            ; preds = %bb235
  %i254 = getelementptr inbounds nuw i8, ptr %i147, i64 24
  %i255 = load float, ptr %i254, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i256 = getelementptr inbounds nuw float, ptr %i147, i64 %i93
  %i257 = load float, ptr %i256, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i258 = getelementptr inbounds nuw i8, ptr %i150, i64 24
  %i259 = load float, ptr %i258, align 4, !tbaa !19, !alias.scope !17, !noalias !23
  %i260 = fmul float %arg46, %i259
  %i261 = getelementptr inbounds nuw i8, ptr %i149, i64 24
  %i262 = load float, ptr %i261, align 4, !tbaa !19, !alias.scope !15, !noalias !22
  %i263 = fmul float %i255, %i262
  %i264 = fmul float %i257, %i260
  %i265 = fsub float %i263, %i264
  %i266 = getelementptr inbounds nuw i8, ptr %i145, i64 24
  store float %i265, ptr %i266, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i267 = fmul float %i257, %i262
  %i268 = fmul float %i255, %i260
  %i269 = fadd float %i267, %i268
  %i270 = getelementptr inbounds nuw float, ptr %i145, i64 %i93
  store float %i269, ptr %i270, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  br label %bb271

bb271:                                            ; preds = %bb253, %bb235, %bb217, %bb199, %bb142
  %i272 = add nuw nsw i64 %i143, 1
  %i273 = icmp eq i64 %i272, %i59
  br i1 %i273, label %.split14.split, label %bb142, !llvm.loop !25

.split14.split:                                   ; preds = %bb271
  %i274 = add nuw nsw i64 %i137, 1
  %i275 = icmp eq i64 %i274, %i50
  br i1 %i275, label %.split17.split, label %.split, !llvm.loop !27

.split17.split:                                   ; preds = %.split14.split
  %i276 = add nuw nsw i64 %i132, 1
  %i277 = icmp eq i64 %i276, %i
  br i1 %i277, label %.loopexit, label %.split15, !llvm.loop !28

bb278:                                            ; preds = %bb522, %bb73
  %i279 = phi i64 [ %i523, %bb522 ], [ 0, %bb73 ]
  %i280 = mul nsw i64 %i279, %i62
  %i281 = getelementptr inbounds float, ptr %arg, i64 %i280
  %i282 = mul nsw i64 %i279, %i65
  %i283 = getelementptr inbounds float, ptr %arg39, i64 %i282
  br label %bb284

bb284:                                            ; preds = %bb519, %bb278
  %i285 = phi i64 [ 0, %bb278 ], [ %i520, %bb519 ]
  %i286 = mul nsw i64 %i285, %i63
  %i287 = getelementptr inbounds float, ptr %i281, i64 %i286
  %i288 = mul nsw i64 %i285, %i66
  %i289 = getelementptr inbounds float, ptr %i283, i64 %i288
  br label %bb290

bb290:                                            ; preds = %.loopexit11, %bb284
  %i291 = phi i64 [ 0, %bb284 ], [ %i492, %.loopexit11 ]
  %i292 = mul nsw i64 %i291, %i64
  %i293 = getelementptr inbounds float, ptr %i287, i64 %i292
  %i294 = mul nsw i64 %i291, %i67
  %i295 = getelementptr inbounds float, ptr %i289, i64 %i294
  %i296 = mul nsw i64 %i291, %arg45
  %i297 = getelementptr inbounds float, ptr %arg40, i64 %i296
  %i298 = getelementptr inbounds float, ptr %arg41, i64 %i296
  tail call void @llvm.experimental.noalias.scope.decl(metadata !10)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !13)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !15)
  tail call void @llvm.experimental.noalias.scope.decl(metadata !17)
  %i299 = getelementptr float, ptr %i295, i64 %i68
  %i300 = getelementptr i8, ptr %i293, i64 %i70
  br label %bb301

bb301:                                            ; preds = %bb301, %bb290
  %i302 = phi i64 [ 0, %bb290 ], [ %i450, %bb301 ]
  %i303 = phi i64 [ 8, %bb290 ], [ %i449, %bb301 ]
  %i304 = phi i64 [ 0, %bb290 ], [ %i303, %bb301 ]
  %i305 = shl i64 %i302, 5
  %i306 = getelementptr i8, ptr %i300, i64 %i305
  %i307 = getelementptr i8, ptr %i293, i64 %i305
  %i308 = getelementptr float, ptr %i299, i64 %i304
  %i309 = getelementptr inbounds nuw float, ptr %i295, i64 %i304
  %i312 = getelementptr inbounds nuw float, ptr %i298, i64 %i304
  %i315 = getelementptr inbounds nuw float, ptr %i297, i64 %i304
  %lane10_2 = load <8 x float>, ptr %i309, align 4, !tbaa !19
  %lane10_3 = load <8 x float>, ptr %i308, align 4, !tbaa !19
  %lane10_4 = load <8 x float>, ptr %i312, align 4, !tbaa !19
  %lane10_5 = fmul <8 x float> %lane10_1, %lane10_4
  %lane10_6 = load <8 x float>, ptr %i315, align 4, !tbaa !19
  %lane10_7 = fmul <8 x float> %lane10_2, %lane10_6
  %lane10_8 = fmul <8 x float> %lane10_3, %lane10_5
  %lane10_9 = fsub <8 x float> %lane10_7, %lane10_8
  %lane10_10 = fmul <8 x float> %lane10_3, %lane10_6
  %lane10_11 = fmul <8 x float> %lane10_2, %lane10_5
  %lane10_12 = fadd <8 x float> %lane10_10, %lane10_11
  store <8 x float> %lane10_9, ptr %i307, align 4, !tbaa !19
  store <8 x float> %lane10_12, ptr %i306, align 4, !tbaa !19
  %i449 = add nuw nsw i64 %i303, 8
  %i450 = add nuw nsw i64 %i302, 1
  %i451 = icmp eq i64 %i302, %i72
  br i1 %i451, label %bb494, label %bb301, !llvm.loop !30

.preheader:                                       ; preds = %bb517, %.preheader
  %i452 = phi i64 [ %i490, %.preheader ], [ %i518, %bb517 ]
  %i453 = getelementptr inbounds nuw float, ptr %i295, i64 %i452
  %i455 = add nuw nsw i64 %i452, %i68
  %i456 = getelementptr inbounds nuw float, ptr %i295, i64 %i455
  %i458 = getelementptr inbounds nuw float, ptr %i298, i64 %i452
  %i461 = getelementptr inbounds nuw float, ptr %i297, i64 %i452
  %i466 = getelementptr inbounds nuw float, ptr %i293, i64 %i452
  %i470 = getelementptr inbounds nuw float, ptr %i293, i64 %i455
  %i471 = add nuw nsw i64 %i452, 1
  %i472 = getelementptr inbounds nuw float, ptr %i295, i64 %i471
  %i473 = load float, ptr %i472, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %lane11_2 = load <2 x float>, ptr %i453, align 4, !tbaa !19
  %i474 = add nuw nsw i64 %i471, %i68
  %i475 = getelementptr inbounds nuw float, ptr %i295, i64 %i474
  %i476 = load float, ptr %i475, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %lane11_3 = load <2 x float>, ptr %i456, align 4, !tbaa !19
  %lane11_4 = load <2 x float>, ptr %i458, align 4, !tbaa !19
  %lane11_5 = fmul <2 x float> %lane11_1, %lane11_4
  %foldExtExtBinop15 = fmul <2 x float> %lane11_2, %lane11_5
  %i479 = extractelement <2 x float> %lane11_5, i64 1
  %i480 = getelementptr inbounds nuw float, ptr %i297, i64 %i471
  %i481 = load float, ptr %i480, align 4, !tbaa !19, !alias.scope !15, !noalias !22
  %lane11_6 = load <2 x float>, ptr %i461, align 4, !tbaa !19
  %foldExtExtBinop17 = fmul <2 x float> %lane11_3, %lane11_6
  %foldExtExtBinop19 = fadd <2 x float> %foldExtExtBinop15, %foldExtExtBinop17
  %i469 = extractelement <2 x float> %foldExtExtBinop19, i64 0
  %lane11_7 = fmul <2 x float> %lane11_2, %lane11_6
  %lane11_8 = fmul <2 x float> %lane11_3, %lane11_5
  %lane11_9 = fsub <2 x float> %lane11_7, %lane11_8
  %i465 = extractelement <2 x float> %lane11_9, i64 0
  store float %i465, ptr %i466, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  store float %i469, ptr %i470, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i484 = extractelement <2 x float> %lane11_9, i64 1
  %i485 = getelementptr inbounds nuw float, ptr %i293, i64 %i471
  store float %i484, ptr %i485, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i486 = fmul float %i476, %i481
  %i487 = fmul float %i473, %i479
  %i488 = fadd float %i486, %i487
  %i489 = getelementptr inbounds nuw float, ptr %i293, i64 %i474
  store float %i488, ptr %i489, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i490 = add nuw nsw i64 %i452, 2
  %i491 = icmp eq i64 %i490, %i68
  br i1 %i491, label %.loopexit11, label %.preheader, !llvm.loop !29

.loopexit11:                                      ; preds = %bb517, %bb494, %.preheader
  %i492 = add nuw nsw i64 %i291, 1
  %i493 = icmp eq i64 %i492, %i59
  br i1 %i493, label %bb519, label %bb290, !llvm.loop !25

bb494:                                            ; preds = %bb301
  %i495 = icmp slt i64 %i303, %i68
  br i1 %i495, label %bb496, label %.loopexit11

bb496:                                            ; preds = %bb494
  br i1 %i77, label %bb517, label %bb497

bb497:                                            ; preds = %bb496
  %i498 = getelementptr inbounds nuw float, ptr %i295, i64 %i303
  %i499 = load float, ptr %i498, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i500 = add nuw nsw i64 %i303, %i68
  %i501 = getelementptr inbounds nuw float, ptr %i295, i64 %i500
  %i502 = load float, ptr %i501, align 4, !tbaa !19, !alias.scope !13, !noalias !21
  %i503 = getelementptr inbounds nuw float, ptr %i298, i64 %i303
  %i504 = load float, ptr %i503, align 4, !tbaa !19, !alias.scope !17, !noalias !23
  %i505 = fmul float %arg46, %i504
  %i506 = getelementptr inbounds nuw float, ptr %i297, i64 %i303
  %i507 = load float, ptr %i506, align 4, !tbaa !19, !alias.scope !15, !noalias !22
  %i508 = fmul float %i499, %i507
  %i509 = fmul float %i502, %i505
  %i510 = fsub float %i508, %i509
  %i511 = getelementptr inbounds nuw float, ptr %i293, i64 %i303
  store float %i510, ptr %i511, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i512 = fmul float %i502, %i507
  %i513 = fmul float %i499, %i505
  %i514 = fadd float %i512, %i513
  %i515 = getelementptr inbounds nuw float, ptr %i293, i64 %i500
  store float %i514, ptr %i515, align 4, !tbaa !19, !alias.scope !10, !noalias !24
  %i516 = or disjoint i64 %i303, 1
  br label %bb517

bb517:                                            ; preds = %bb497, %bb496
  %i518 = phi i64 [ %i303, %bb496 ], [ %i516, %bb497 ]
  br i1 %i78, label %.loopexit11, label %.preheader

bb519:                                            ; preds = %.loopexit11
  %i520 = add nuw nsw i64 %i285, 1
  %i521 = icmp eq i64 %i520, %i50
  br i1 %i521, label %bb522, label %bb284, !llvm.loop !27

bb522:                                            ; preds = %bb519
  %i523 = add nuw nsw i64 %i279, 1
  %i524 = icmp eq i64 %i523, %i
  br i1 %i524, label %.loopexit, label %bb278, !llvm.loop !28

.loopexit:                                        ; preds = %bb522, %.split17.split, %.split17.us.us, %.split17.split.us.us, %bb79, %bb57, %bb48, %bb
  ret void
}

; Function Attrs: nofree norecurse nosync nounwind memory(argmem: readwrite) uwtable
define dso_local void @dropout(ptr noalias noundef writeonly captures(none) %arg, ptr noalias noundef readonly captures(none) %arg27, ptr noalias noundef readonly captures(none) %arg28, ptr noalias noundef readonly captures(none) %arg29, i64 noundef %arg30, i64 noundef %arg31, i32 noundef %arg32, float noundef %arg33) local_unnamed_addr #1 {
bb:
  %i = icmp sgt i64 %arg30, 0
  br i1 %i, label %bb34, label %.loopexit

bb34:                                             ; preds = %bb
  %i35 = icmp slt i64 %arg31, 8
  br i1 %i35, label %bb40, label %bb36

bb36:                                             ; preds = %bb34
  %i37 = shl i64 %arg31, 2
  %i38 = add nsw i64 %arg31, -8
  %i39 = lshr i64 %i38, 3
  %i16 = insertelement <8 x i32> poison, i32 %arg32, i64 0
  %i17 = shufflevector <8 x i32> %i16, <8 x i32> poison, <8 x i32> zeroinitializer
  %i18 = insertelement <8 x float> poison, float %arg33, i64 0
  %i19 = shufflevector <8 x float> %i18, <8 x float> poison, <8 x i32> zeroinitializer
  br label %bb255

bb40:                                             ; preds = %bb34
  %i41 = icmp sgt i64 %arg31, 0
  br i1 %i41, label %bb42, label %.loopexit

bb42:                                             ; preds = %bb40
  %i43 = load i32, ptr %arg29, align 4, !tbaa !4
  %i44 = icmp eq i64 %arg31, 1
  %i45 = getelementptr inbounds nuw i8, ptr %arg29, i64 8
  %i46 = icmp eq i64 %arg31, 3
  %i47 = getelementptr inbounds nuw i8, ptr %arg29, i64 12
  %i48 = icmp eq i64 %arg31, 4
  %i49 = getelementptr inbounds nuw i8, ptr %arg29, i64 16
  %i50 = icmp eq i64 %arg31, 5
  %i51 = getelementptr inbounds nuw i8, ptr %arg29, i64 20
  %i52 = icmp eq i64 %arg31, 6
  %i53 = getelementptr inbounds nuw i8, ptr %arg29, i64 24
  br i1 %i44, label %.split.us, label %.split, !llvm.loop !31

.split.us:                                        ; preds = %bb72, %bb42
  %i54 = phi i64 [ %i74, %bb72 ], [ 0, %bb42 ]
  %i55 = getelementptr inbounds nuw i32, ptr %arg28, i64 %i54
  %i56 = load i32, ptr %i55, align 4, !tbaa !4
  %i57 = getelementptr inbounds nuw float, ptr %arg, i64 %i54
  %i58 = add i32 %i56, %i43
  %i59 = lshr i32 %i58, 16
  %i60 = xor i32 %i59, %i58
  %i61 = mul i32 %i60, 2146121005
  %i62 = lshr i32 %i61, 15
  %i63 = xor i32 %i62, %i61
  %i64 = mul i32 %i63, -2073254261
  %i65 = lshr i32 %i64, 16
  %i66 = xor i32 %i65, %i64
  %i67 = icmp slt i32 %i66, %arg32
  br i1 %i67, label %bb72, label %bb68

bb68:                                             ; preds = %.split.us
  %i69 = getelementptr inbounds nuw float, ptr %arg27, i64 %i54
  %i70 = load float, ptr %i69, align 4, !tbaa !19
  %i71 = fmul float %arg33, %i70
  br label %bb72

bb72:                                             ; preds = %bb68, %.split.us
  %i73 = phi float [ %i71, %bb68 ], [ 0.000000e+00, %.split.us ]
  store float %i73, ptr %i57, align 4, !tbaa !19
  %i74 = add nuw nsw i64 %i54, 1
  %i75 = icmp eq i64 %i74, %arg30
  br i1 %i75, label %.loopexit, label %.split.us, !llvm.loop !32

.split:                                           ; preds = %bb42
  %i76 = icmp eq i64 %arg31, 2
  %i77 = getelementptr inbounds nuw i8, ptr %arg29, i64 4
  %i78 = load i32, ptr %i77, align 4, !tbaa !4
  br i1 %i76, label %.split.split.us, label %.split.split, !llvm.loop !31

.split.split.us:                                  ; preds = %bb114, %.split
  %i79 = phi i64 [ %i117, %bb114 ], [ 0, %.split ]
  %i80 = getelementptr inbounds nuw i32, ptr %arg28, i64 %i79
  %i81 = load i32, ptr %i80, align 4, !tbaa !4
  %i82 = shl nuw nsw i64 %i79, 1
  %i83 = getelementptr inbounds nuw float, ptr %arg, i64 %i82
  %i84 = getelementptr inbounds nuw float, ptr %arg27, i64 %i82
  %i85 = add i32 %i81, %i43
  %i86 = lshr i32 %i85, 16
  %i87 = xor i32 %i86, %i85
  %i88 = mul i32 %i87, 2146121005
  %i89 = lshr i32 %i88, 15
  %i90 = xor i32 %i89, %i88
  %i91 = mul i32 %i90, -2073254261
  %i92 = lshr i32 %i91, 16
  %i93 = xor i32 %i92, %i91
  %i94 = icmp slt i32 %i93, %arg32
  br i1 %i94, label %bb98, label %bb95

bb95:                                             ; preds = %.split.split.us
  %i96 = load float, ptr %i84, align 4, !tbaa !19
  %i97 = fmul float %arg33, %i96
  br label %bb98

bb98:                                             ; preds = %bb95, %.split.split.us
  %i99 = phi float [ %i97, %bb95 ], [ 0.000000e+00, %.split.split.us ]
  store float %i99, ptr %i83, align 4, !tbaa !19
  %i100 = add i32 %i81, %i78
  %i101 = lshr i32 %i100, 16
  %i102 = xor i32 %i101, %i100
  %i103 = mul i32 %i102, 2146121005
  %i104 = lshr i32 %i103, 15
  %i105 = xor i32 %i104, %i103
  %i106 = mul i32 %i105, -2073254261
  %i107 = lshr i32 %i106, 16
  %i108 = xor i32 %i107, %i106
  %i109 = icmp slt i32 %i108, %arg32
  br i1 %i109, label %bb114, label %bb110

bb110:                                            ; preds = %bb98
  %i111 = getelementptr inbounds nuw i8, ptr %i84, i64 4
  %i112 = load float, ptr %i111, align 4, !tbaa !19
  %i113 = fmul float %arg33, %i112
  br label %bb114

bb114:                                            ; preds = %bb110, %bb98
  %i115 = phi float [ %i113, %bb110 ], [ 0.000000e+00, %bb98 ]
  %i116 = getelementptr inbounds nuw i8, ptr %i83, i64 4
  store float %i115, ptr %i116, align 4, !tbaa !19
  %i117 = add nuw nsw i64 %i79, 1
  %i118 = icmp eq i64 %i117, %arg30
  br i1 %i118, label %.loopexit, label %.split.split.us, !llvm.loop !32

.split.split:                                     ; preds = %.split
  %i119 = load i32, ptr %i45, align 4, !tbaa !4
  br label %bb120

bb120:                                            ; preds = %bb252, %.split.split
  %i121 = phi i64 [ %i253, %bb252 ], [ 0, %.split.split ]
  %i122 = getelementptr inbounds nuw i32, ptr %arg28, i64 %i121
  %i123 = load i32, ptr %i122, align 4, !tbaa !4
  %i124 = mul nuw nsw i64 %i121, %arg31
  %i125 = getelementptr inbounds nuw float, ptr %arg, i64 %i124
  %i126 = getelementptr inbounds nuw float, ptr %arg27, i64 %i124
  %i127 = add i32 %i123, %i43
  %i128 = lshr i32 %i127, 16
  %i129 = xor i32 %i128, %i127
  %i130 = mul i32 %i129, 2146121005
  %i131 = lshr i32 %i130, 15
  %i132 = xor i32 %i131, %i130
  %i133 = mul i32 %i132, -2073254261
  %i134 = lshr i32 %i133, 16
  %i135 = xor i32 %i134, %i133
  %i136 = icmp slt i32 %i135, %arg32
  br i1 %i136, label %bb140, label %bb137

bb137:                                            ; preds = %bb120
  %i138 = load float, ptr %i126, align 4, !tbaa !19
  %i139 = fmul float %arg33, %i138
  br label %bb140

bb140:                                            ; preds = %bb137, %bb120
  %i141 = phi float [ %i139, %bb137 ], [ 0.000000e+00, %bb120 ]
  store float %i141, ptr %i125, align 4, !tbaa !19
  %i142 = add i32 %i123, %i78
  %i143 = lshr i32 %i142, 16
  %i144 = xor i32 %i143, %i142
  %i145 = mul i32 %i144, 2146121005
  %i146 = lshr i32 %i145, 15
  %i147 = xor i32 %i146, %i145
  %i148 = mul i32 %i147, -2073254261
  %i149 = lshr i32 %i148, 16
  %i150 = xor i32 %i149, %i148
  %i151 = icmp slt i32 %i150, %arg32
  br i1 %i151, label %bb156, label %bb152

bb152:                                            ; preds = %bb140
  %i153 = getelementptr inbounds nuw i8, ptr %i126, i64 4
  %i154 = load float, ptr %i153, align 4, !tbaa !19
  %i155 = fmul float %arg33, %i154
  br label %bb156

bb156:                                            ; preds = %bb152, %bb140
  %i157 = phi float [ %i155, %bb152 ], [ 0.000000e+00, %bb140 ]
  %i158 = getelementptr inbounds nuw i8, ptr %i125, i64 4
  store float %i157, ptr %i158, align 4, !tbaa !19
  %i159 = add i32 %i123, %i119
  %i160 = lshr i32 %i159, 16
  %i161 = xor i32 %i160, %i159
  %i162 = mul i32 %i161, 2146121005
  %i163 = lshr i32 %i162, 15
  %i164 = xor i32 %i163, %i162
  %i165 = mul i32 %i164, -2073254261
  %i166 = lshr i32 %i165, 16
  %i167 = xor i32 %i166, %i165
  %i168 = icmp slt i32 %i167, %arg32
  br i1 %i168, label %bb173, label %bb169

bb169:                                            ; preds = %bb156
  %i170 = getelementptr inbounds nuw i8, ptr %i126, i64 8
  %i171 = load float, ptr %i170, align 4, !tbaa !19
  %i172 = fmul float %arg33, %i171
  br label %bb173

bb173:                                            ; preds = %bb169, %bb156
  %i174 = phi float [ %i172, %bb169 ], [ 0.000000e+00, %bb156 ]
  %i175 = getelementptr inbounds nuw i8, ptr %i125, i64 8
  store float %i174, ptr %i175, align 4, !tbaa !19
  br i1 %i46, label %bb252, label %bb176, !llvm.loop !31

bb176:                                            ; preds = %bb173
  %i177 = load i32, ptr %i47, align 4, !tbaa !4
  %i178 = add i32 %i177, %i123
  %i179 = lshr i32 %i178, 16
  %i180 = xor i32 %i179, %i178
  %i181 = mul i32 %i180, 2146121005
  %i182 = lshr i32 %i181, 15
  %i183 = xor i32 %i182, %i181
  %i184 = mul i32 %i183, -2073254261
  %i185 = lshr i32 %i184, 16
  %i186 = xor i32 %i185, %i184
  %i187 = icmp slt i32 %i186, %arg32
  br i1 %i187, label %bb192, label %bb188

bb188:                                            ; preds = %bb176
  %i189 = getelementptr inbounds nuw i8, ptr %i126, i64 12
  %i190 = load float, ptr %i189, align 4, !tbaa !19
  %i191 = fmul float %arg33, %i190
  br label %bb192

bb192:                                            ; preds = %bb188, %bb176
  %i193 = phi float [ %i191, %bb188 ], [ 0.000000e+00, %bb176 ]
  %i194 = getelementptr inbounds nuw i8, ptr %i125, i64 12
  store float %i193, ptr %i194, align 4, !tbaa !19
  br i1 %i48, label %bb252, label %bb195, !llvm.loop !31

bb195:                                            ; preds = %bb192
  %i196 = load i32, ptr %i49, align 4, !tbaa !4
  %i197 = add i32 %i196, %i123
  %i198 = lshr i32 %i197, 16
  %i199 = xor i32 %i198, %i197
  %i200 = mul i32 %i199, 2146121005
  %i201 = lshr i32 %i200, 15
  %i202 = xor i32 %i201, %i200
  %i203 = mul i32 %i202, -2073254261
  %i204 = lshr i32 %i203, 16
  %i205 = xor i32 %i204, %i203
  %i206 = icmp slt i32 %i205, %arg32
  br i1 %i206, label %bb211, label %bb207

bb207:                                            ; preds = %bb195
  %i208 = getelementptr inbounds nuw i8, ptr %i126, i64 16
  %i209 = load float, ptr %i208, align 4, !tbaa !19
  %i210 = fmul float %arg33, %i209
  br label %bb211

bb211:                                            ; preds = %bb207, %bb195
  %i212 = phi float [ %i210, %bb207 ], [ 0.000000e+00, %bb195 ]
  %i213 = getelementptr inbounds nuw i8, ptr %i125, i64 16
  store float %i212, ptr %i213, align 4, !tbaa !19
  br i1 %i50, label %bb252, label %bb214, !llvm.loop !31

bb214:                                            ; preds = %bb211
  %i215 = load i32, ptr %i51, align 4, !tbaa !4
  %i216 = add i32 %i215, %i123
  %i217 = lshr i32 %i216, 16
  %i218 = xor i32 %i217, %i216
  %i219 = mul i32 %i218, 2146121005
  %i220 = lshr i32 %i219, 15
  %i221 = xor i32 %i220, %i219
  %i222 = mul i32 %i221, -2073254261
  %i223 = lshr i32 %i222, 16
  %i224 = xor i32 %i223, %i222
  %i225 = icmp slt i32 %i224, %arg32
  br i1 %i225, label %bb230, label %bb226

bb226:                                            ; preds = %bb214
  %i227 = getelementptr inbounds nuw i8, ptr %i126, i64 20
  %i228 = load float, ptr %i227, align 4, !tbaa !19
  %i229 = fmul float %arg33, %i228
  br label %bb230

bb230:                                            ; preds = %bb226, %bb214
  %i231 = phi float [ %i229, %bb226 ], [ 0.000000e+00, %bb214 ]
  %i232 = getelementptr inbounds nuw i8, ptr %i125, i64 20
  store float %i231, ptr %i232, align 4, !tbaa !19
  br i1 %i52, label %bb252, label %bb233, !llvm.loop !31

bb233:                                            ; preds = %bb230
  %i234 = load i32, ptr %i53, align 4, !tbaa !4
  %i235 = add i32 %i234, %i123
  %i236 = lshr i32 %i235, 16
  %i237 = xor i32 %i236, %i235
  %i238 = mul i32 %i237, 2146121005
  %i239 = lshr i32 %i238, 15
  %i240 = xor i32 %i239, %i238
  %i241 = mul i32 %i240, -2073254261
  %i242 = lshr i32 %i241, 16
  %i243 = xor i32 %i242, %i241
  %i244 = icmp slt i32 %i243, %arg32
  br i1 %i244, label %bb249, label %bb245

bb245:                                            ; preds = %bb233
  %i246 = getelementptr inbounds nuw i8, ptr %i126, i64 24
  %i247 = load float, ptr %i246, align 4, !tbaa !19
  %i248 = fmul float %arg33, %i247
  br label %bb249

bb249:                                            ; preds = %bb245, %bb233
  %i250 = phi float [ %i248, %bb245 ], [ 0.000000e+00, %bb233 ]
  %i251 = getelementptr inbounds nuw i8, ptr %i125, i64 24
  store float %i250, ptr %i251, align 4, !tbaa !19
  br label %bb252

bb252:                                            ; preds = %bb249, %bb230, %bb211, %bb192, %bb173
  %i253 = add nuw nsw i64 %i121, 1
  %i254 = icmp eq i64 %i253, %arg30
  br i1 %i254, label %.loopexit, label %bb120, !llvm.loop !32

.loopexit:                                        ; preds = %.loopexit6, %bb252, %bb114, %bb72, %bb40, %bb
  ret void

bb255:                                            ; preds = %.loopexit6, %bb36
  %i256 = phi i64 [ %i439, %.loopexit6 ], [ 0, %bb36 ]
  %i257 = mul nuw nsw i64 %i37, %i256
  %i258 = getelementptr inbounds nuw i32, ptr %arg28, i64 %i256
  %i259 = load i32, ptr %i258, align 4, !tbaa !4
  %i260 = mul nuw nsw i64 %i256, %arg31
  %i261 = getelementptr inbounds nuw float, ptr %arg27, i64 %i260
  %i262 = getelementptr i8, ptr %arg, i64 %i257
  %i20 = insertelement <8 x i32> poison, i32 %i259, i64 0
  %i21 = shufflevector <8 x i32> %i20, <8 x i32> poison, <8 x i32> zeroinitializer
  br label %bb266

bb263:                                            ; preds = %bb266
  %i264 = getelementptr inbounds nuw float, ptr %arg, i64 %i260
  %i265 = icmp slt i64 %i268, %arg31
  br i1 %i265, label %.preheader, label %.loopexit6

bb266:                                            ; preds = %bb266, %bb255
  %i267 = phi i64 [ 0, %bb255 ], [ %i415, %bb266 ]
  %i268 = phi i64 [ 8, %bb255 ], [ %i414, %bb266 ]
  %i269 = phi i64 [ 0, %bb255 ], [ %i268, %bb266 ]
  %i270 = shl i64 %i267, 5
  %i271 = getelementptr i8, ptr %i262, i64 %i270
  %i272 = getelementptr inbounds nuw float, ptr %i261, i64 %i269
  %i275 = getelementptr inbounds nuw i32, ptr %arg29, i64 %i269
  %i22 = load <8 x float>, ptr %i272, align 4, !tbaa !19
  %i23 = fmul <8 x float> %i19, %i22
  %i24 = load <8 x i32>, ptr %i275, align 4, !tbaa !4
  %i25 = add <8 x i32> %i24, %i21
  %i26 = lshr <8 x i32> %i25, splat (i32 16)
  %i27 = xor <8 x i32> %i26, %i25
  %i28 = mul <8 x i32> %i27, splat (i32 2146121005)
  %i29 = lshr <8 x i32> %i28, splat (i32 15)
  %i30 = xor <8 x i32> %i29, %i28
  %i31 = mul <8 x i32> %i30, splat (i32 -2073254261)
  %i32 = lshr <8 x i32> %i31, splat (i32 16)
  %i33 = xor <8 x i32> %i32, %i31
  %i34 = icmp slt <8 x i32> %i33, %i17
  %i36 = select <8 x i1> %i34, <8 x float> zeroinitializer, <8 x float> %i23
  store <8 x float> %i36, ptr %i271, align 4, !tbaa !19
  %i414 = add nuw nsw i64 %i268, 8
  %i415 = add nuw nsw i64 %i267, 1
  %i416 = icmp eq i64 %i267, %i39
  br i1 %i416, label %bb263, label %bb266, !llvm.loop !33

.preheader:                                       ; preds = %bb434, %bb263
  %i417 = phi i64 [ %i437, %bb434 ], [ %i268, %bb263 ]
  %i418 = getelementptr inbounds nuw i32, ptr %arg29, i64 %i417
  %i419 = load i32, ptr %i418, align 4, !tbaa !4
  %i420 = add i32 %i419, %i259
  %i421 = lshr i32 %i420, 16
  %i422 = xor i32 %i421, %i420
  %i423 = mul i32 %i422, 2146121005
  %i424 = lshr i32 %i423, 15
  %i425 = xor i32 %i424, %i423
  %i426 = mul i32 %i425, -2073254261
  %i427 = lshr i32 %i426, 16
  %i428 = xor i32 %i427, %i426
  %i429 = icmp slt i32 %i428, %arg32
  br i1 %i429, label %bb434, label %bb430

bb430:                                            ; preds = %.preheader
  %i431 = getelementptr inbounds nuw float, ptr %i261, i64 %i417
  %i432 = load float, ptr %i431, align 4, !tbaa !19
  %i433 = fmul float %arg33, %i432
  br label %bb434

bb434:                                            ; preds = %bb430, %.preheader
  %i435 = phi float [ %i433, %bb430 ], [ 0.000000e+00, %.preheader ]
  %i436 = getelementptr inbounds nuw float, ptr %i264, i64 %i417
  store float %i435, ptr %i436, align 4, !tbaa !19
  %i437 = add nuw nsw i64 %i417, 1
  %i438 = icmp slt i64 %i437, %arg31
  br i1 %i438, label %.preheader, label %.loopexit6, !llvm.loop !31

.loopexit6:                                       ; preds = %bb434, %bb263
  %i439 = add nuw nsw i64 %i256, 1
  %i440 = icmp eq i64 %i439, %arg30
  br i1 %i440, label %.loopexit, label %bb255, !llvm.loop !32
}

; Function Attrs: nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: readwrite)
declare void @llvm.experimental.noalias.scope.decl(metadata) #2

attributes #0 = { nofree norecurse nosync nounwind memory(argmem: readwrite, inaccessiblemem: readwrite) uwtable "min-legal-vector-width"="0" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }
attributes #1 = { nofree norecurse nosync nounwind memory(argmem: readwrite) uwtable "min-legal-vector-width"="0" "no-trapping-math"="true" "stack-protector-buffer-size"="8" }
attributes #2 = { nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: readwrite) }

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
!8 = !{!9, !9, i64 0}
!9 = !{!"long", !6, i64 0}
!10 = !{!11}
!11 = distinct !{!11, !12, !"turn: argument 0"}
!12 = distinct !{!12, !"turn"}
!13 = !{!14}
!14 = distinct !{!14, !12, !"turn: argument 1"}
!15 = !{!16}
!16 = distinct !{!16, !12, !"turn: argument 2"}
!17 = !{!18}
!18 = distinct !{!18, !12, !"turn: argument 3"}
!19 = !{!20, !20, i64 0}
!20 = !{!"float", !6, i64 0}
!21 = !{!11, !16, !18}
!22 = !{!11, !14, !18}
!23 = !{!11, !14, !16}
!24 = !{!14, !16, !18}
!25 = distinct !{!25, !26}
!26 = !{!"llvm.loop.mustprogress"}
!27 = distinct !{!27, !26}
!28 = distinct !{!28, !26}
!29 = distinct !{!29, !26}
!30 = distinct !{!30, !26}
!31 = distinct !{!31, !26}
!32 = distinct !{!32, !26}
!33 = distinct !{!33, !26}
