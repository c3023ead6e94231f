"""TFLite's file format as data: its tables, its operators' numbers, and the runtime each operator version needs.

Facts of ``schema.fbs`` (version 3, identifier "TFL3") and of the runtime's list of operator versions. Knows no graph.
Fields that nxjax neither writes nor reads still hold their places, since places are the fields' numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from nxjax.lower.npu.formats.flatbuffer import Schema
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

IDENTIFIER: Final = b"TFL3"

# TensorType, by number.
TENSOR_TYPES: Final[dict[int, DType]] = {
    0: dtypes.float32, 1: dtypes.float16, 2: dtypes.int32, 3: dtypes.uint8, 4: dtypes.int64, 6: dtypes.bool_,
    7: dtypes.int16, 9: dtypes.int8, 10: dtypes.float64, 12: dtypes.uint64, 15: dtypes.uint32, 16: dtypes.uint16,
    17: dtypes.int4, 18: dtypes.bfloat16, 20: dtypes.uint4,
}  # fmt: skip
TYPE_NUMBERS: Final = {dtype: number for number, dtype in TENSOR_TYPES.items()}
# The type of tensors that name variables.
RESOURCE: Final = 13

# ActivationFunctionType and Padding, by number.
ACTIVATIONS: Final = (None, "relu", "relu_n1_to_1", "relu6")
SAME, VALID = 0, 1

# BuiltinOptions, in order: the number of a member is its place, from 1.
_OPTIONS: Final = """
Conv2D DepthwiseConv2D ConcatEmbeddings LSHProjection Pool2D SVDF RNN FullyConnected Softmax Concatenation Add
L2Norm LocalResponseNormalization LSTM ResizeBilinear Call Reshape SkipGram SpaceToDepth EmbeddingLookupSparse Mul
Pad Gather BatchToSpaceND SpaceToBatchND Transpose Reducer Sub Div Squeeze SequenceRNN StridedSlice Exp TopKV2
Split LogSoftmax Cast Dequantize MaximumMinimum ArgMax Less Neg PadV2 Greater GreaterEqual LessEqual Select Slice
TransposeConv SparseToDense Tile ExpandDims Equal NotEqual Shape Pow ArgMin FakeQuant Pack LogicalOr OneHot
LogicalAnd LogicalNot Unpack FloorDiv Square ZerosLike Fill BidirectionalSequenceLSTM BidirectionalSequenceRNN
UnidirectionalSequenceLSTM FloorMod Range ResizeNearestNeighbor LeakyRelu SquaredDifference MirrorPad Abs SplitV
Unique ReverseV2 AddN GatherNd Cos Where Rank ReverseSequence MatrixDiag Quantize MatrixSetDiag HardSwish If While
DepthToSpace NonMaxSuppressionV4 NonMaxSuppressionV5 ScatterNd SelectV2 Densify SegmentSum BatchMatMul Cumsum
CallOnce BroadcastTo Rfft2d Conv3D Hashtable HashtableFind HashtableImport HashtableSize VarHandle ReadVariable
AssignVariable Random Bucketize Gelu DynamicUpdateSlice UnsortedSegmentProd UnsortedSegmentMax UnsortedSegmentMin
UnsortedSegmentSum ATan2 Sign Bitcast BitwiseXor RightShift
"""

# BuiltinOptions2, in order.
_OPTIONS_2: Final = """
StablehloConcatenate StablehloBroadcastInDim StablehloSlice StablehloConvolution StablehloCustomCall StablehloReduce
StablehloScatter StablehloCompare StablehloDynamicSlice StablehloPad StablehloIota StablehloDotGeneral
StablehloReduceWindow StablehloSort StablehloWhile StablehloGather StablehloTranspose Dilate StablehloRngBitGenerator
ReduceWindow StableHLOComposite StablehloShiftLeft StablehloCase
"""

_TABLES: Final = """
Model: version:u32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:str buffers:[Buffer]
  metadata_buffer:[i32] metadata:[Metadata] signature_defs:[SignatureDef]
OperatorCode: deprecated_builtin_code:i8 custom_code:str version:i32=1 builtin_code:i32
SubGraph: tensors:[Tensor] inputs:[i32] outputs:[i32] operators:[Operator] name:str
Tensor: shape:[i32] type:i8 buffer:u32 name:str quantization:QuantizationParameters is_variable:bool
  sparsity:SparsityParameters shape_signature:[i32] has_rank:bool
SparsityParameters: traversal_order:[i32] block_map:[i32] dim_metadata:[DimensionMetadata]
DimensionMetadata: format:i8 dense_size:i32 array_segments:SparseIndexVector array_indices:SparseIndexVector
Int32Vector: values:[i32]
Uint16Vector: values:[u16]
Uint8Vector: values:[u8]
QuantizationParameters: min:[f32] max:[f32] scale:[f32] zero_point:[i64] details:QuantizationDetails
  quantized_dimension:i32
BlockwiseQuantization: scales:i32 zero_points:i32 block_size:i32
Operator: opcode_index:u32 inputs:[i32] outputs:[i32] builtin_options:BuiltinOptions custom_options:[u8]
  custom_options_format:i8 mutating_variable_inputs:[bool] intermediates:[i32] large_custom_options_offset:u64
  large_custom_options_size:u64 builtin_options_2:BuiltinOptions2
Buffer: data:bytes offset:u64 size:u64
Metadata: name:str buffer:u32
SignatureDef: inputs:[TensorMap] outputs:[TensorMap] signature_key:str deprecated_tag:str subgraph_index:u32
TensorMap: name:str tensor_index:u32
Conv2DOptions: padding:i8 stride_w:i32 stride_h:i32 fused_activation_function:i8 dilation_w_factor:i32=1
  dilation_h_factor:i32=1 quantized_bias_type:i8
DepthwiseConv2DOptions: padding:i8 stride_w:i32 stride_h:i32 depth_multiplier:i32 fused_activation_function:i8
  dilation_w_factor:i32=1 dilation_h_factor:i32=1
TransposeConvOptions: padding:i8 stride_w:i32 stride_h:i32 fused_activation_function:i8 quantized_bias_type:i8
Pool2DOptions: padding:i8 stride_w:i32 stride_h:i32 filter_width:i32 filter_height:i32 fused_activation_function:i8
FullyConnectedOptions: fused_activation_function:i8 weights_format:i8 keep_num_dims:bool
  asymmetric_quantize_inputs:bool quantized_bias_type:i8
BatchMatMulOptions: adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool
AddOptions: fused_activation_function:i8 pot_scale_int16:bool=1
SubOptions: fused_activation_function:i8 pot_scale_int16:bool=1
MulOptions: fused_activation_function:i8
DivOptions: fused_activation_function:i8
SoftmaxOptions: beta:f32
ConcatenationOptions: axis:i32 fused_activation_function:i8
ReshapeOptions: new_shape:[i32]
SqueezeOptions: squeeze_dims:[i32]
GatherOptions: axis:i32 batch_dims:i32
ReducerOptions: keep_dims:bool
SplitOptions: num_splits:i32
SplitVOptions: num_splits:i32
StridedSliceOptions: begin_mask:i32 end_mask:i32 ellipsis_mask:i32 new_axis_mask:i32 shrink_axis_mask:i32 offset:bool
CastOptions: in_data_type:i8 out_data_type:i8
ArgMaxOptions: output_type:i8
ArgMinOptions: output_type:i8
OneHotOptions: axis:i32
LeakyReluOptions: alpha:f32
CumsumOptions: exclusive:bool reverse:bool
GeluOptions: approximate:bool
ResizeBilinearOptions: new_height:i32 new_width:i32 align_corners:bool half_pixel_centers:bool
ResizeNearestNeighborOptions: align_corners:bool half_pixel_centers:bool
SVDFOptions: rank:i32 fused_activation_function:i8 asymmetric_quantize_inputs:bool
RNNOptions: fused_activation_function:i8 asymmetric_quantize_inputs:bool
SequenceRNNOptions: time_major:bool fused_activation_function:i8 asymmetric_quantize_inputs:bool
BidirectionalSequenceRNNOptions: time_major:bool fused_activation_function:i8 merge_outputs:bool
  asymmetric_quantize_inputs:bool
LSTMOptions: fused_activation_function:i8 cell_clip:f32 proj_clip:f32 kernel_type:i8 asymmetric_quantize_inputs:bool
UnidirectionalSequenceLSTMOptions: fused_activation_function:i8 cell_clip:f32 proj_clip:f32 time_major:bool
  asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool
BidirectionalSequenceLSTMOptions: fused_activation_function:i8 cell_clip:f32 proj_clip:f32 merge_outputs:bool
  time_major:bool=1 asymmetric_quantize_inputs:bool
L2NormOptions: fused_activation_function:i8
LocalResponseNormalizationOptions: radius:i32 bias:f32 alpha:f32 beta:f32
SpaceToDepthOptions: block_size:i32
DepthToSpaceOptions: block_size:i32
ShapeOptions: out_type:i8
PackOptions: values_count:i32 axis:i32
UnpackOptions: num:i32 axis:i32
MirrorPadOptions: mode:i8
UniqueOptions: idx_out_type:i8=2
ReverseSequenceOptions: seq_dim:i32 batch_dim:i32
FakeQuantOptions: min:f32 max:f32 num_bits:i32 narrow_range:bool
SparseToDenseOptions: validate_indices:bool
EmbeddingLookupSparseOptions: combiner:i8
IfOptions: then_subgraph_index:i32 else_subgraph_index:i32
WhileOptions: cond_subgraph_index:i32 body_subgraph_index:i32
CallOptions: subgraph:u32
CallOnceOptions: init_subgraph_index:i32
VarHandleOptions: container:str shared_name:str
Conv3DOptions: padding:i8 stride_d:i32 stride_w:i32 stride_h:i32 fused_activation_function:i8 dilation_d_factor:i32=1
  dilation_w_factor:i32=1 dilation_h_factor:i32=1
RandomOptions: seed:i64 seed2:i64
BucketizeOptions: boundaries:[f32]
StablehloConcatenateOptions: dimension:i64
StablehloBroadcastInDimOptions: broadcast_dimensions:[i64]
StablehloSliceOptions: start_indices:[i64] limit_indices:[i64] strides:[i64]
StablehloConvolutionOptions: window_strides:[i64] padding:[i64] lhs_dilation:[i64] rhs_dilation:[i64]
  window_reversal:[bool] input_batch_dimension:i64 input_feature_dimension:i64 input_spatial_dimensions:[i64]
  kernel_input_feature_dimension:i64 kernel_output_feature_dimension:i64 kernel_spatial_dimensions:[i64]
  output_batch_dimension:i64 output_feature_dimension:i64 output_spatial_dimensions:[i64] feature_group_count:i64
  batch_group_count:i64 precision_config:[u32]
StablehloReduceOptions: dimensions:[i64] body_subgraph_index:i32
StablehloScatterOptions: indices_are_sorted:bool update_window_dims:[i64] inserted_window_dims:[i64]
  scatter_dims_to_operand_dims:[i64] index_vector_dim:i64 unique_indices:bool update_computation_subgraph_index:i32
StablehloCompareOptions: comparison_direction:u32 compare_type:u32
StablehloDynamicSliceOptions: slice_sizes:[i64]
StablehloPadOptions: edge_padding_low:[i64] edge_padding_high:[i64] interior_padding:[i64]
StablehloIotaOptions: iota_dimension:i64
StablehloDotGeneralOptions: lhs_batching_dimensions:[i64] rhs_batching_dimensions:[i64]
  lhs_contracting_dimensions:[i64] rhs_contracting_dimensions:[i64] precision_config:[u32]
StablehloReduceWindowOptions: window_dimensions:[i64] window_strides:[i64] base_dilations:[i64] window_dilations:[i64]
  padding:[i64] body_subgraph_index:i32
StablehloSortOptions: dimension:i64 is_stable:bool comparator_subgraph_index:i32
StablehloWhileOptions: cond_subgraph_index:i32 body_subgraph_index:i32
StablehloGatherOptions: offset_dims:[i64] collapsed_slice_dims:[i64] start_index_map:[i64] index_vector_dim:i64
  slice_sizes:[i64] indices_are_sorted:bool
StablehloTransposeOptions: permutation:[i64]
StablehloRngBitGeneratorOptions: algorithm:i8
ReduceWindowOptions: reduce_function:i32
StableHLOCompositeOptions: name:str decomposition_subgraph_index:i32 composite_attributes:[u8]
  composite_attributes_format:i8 version:i32
StablehloCaseOptions: branch_subgraph_indices:[i32]
"""

# Operator, number, table of its options ("-": none), and the first runtime that has version 1, 2, ... of it.
_OPERATORS: Final = """
ADD 0 AddOptions 1.5.0 1.14.0 2.4.0 2.6.0 2.13.0 2.23.0
AVERAGE_POOL_2D 1 Pool2DOptions 1.5.0 1.14.0 2.3.0
CONCATENATION 2 ConcatenationOptions 1.5.0 1.14.0 2.3.0 2.14.0 2.21.0 2.23.0 2.23.0
CONV_2D 3 Conv2DOptions 1.5.0 1.14.0 1.14.0 2.3.0 2.4.0 2.9.0 2.11.0 2.15.0
DEPTHWISE_CONV_2D 4 DepthwiseConv2DOptions 1.5.0 1.12.0 1.14.0 2.2.0 2.3.0 2.3.0 2.11.0
DEQUANTIZE 6 DequantizeOptions 1.13.1 1.14.0 1.15.0 2.2.0 2.7.0 2.18.0 2.21.0 2.22.0 2.23.0
FLOOR 8 - 1.9.0
FULLY_CONNECTED 9 FullyConnectedOptions 1.5.0 1.10.0 1.14.0 1.14.0 2.0.0 2.1.0 2.3.0 2.3.0 2.3.0 2.11.0 2.15.0 2.17.0
  2.18.0 2.21.0
LOGISTIC 14 - 1.14.0 1.14.0 2.3.0
MAX_POOL_2D 17 Pool2DOptions 1.5.0 1.14.0 2.3.0
MUL 18 MulOptions 1.5.0 1.14.0 1.15.0 2.3.0 2.6.0 2.11.0 2.13.0 2.23.0
RELU 19 - 1.5.0 2.1.0 2.5.0
RELU_N1_TO_1 20 - 1.5.0
RELU6 21 - 1.5.0 1.14.0 2.5.0
RESHAPE 22 ReshapeOptions 1.5.0
RESIZE_BILINEAR 23 ResizeBilinearOptions 1.7.0 1.14.0 2.2.0 2.5.0
SOFTMAX 25 SoftmaxOptions 1.5.0 1.14.0 2.3.0 2.23.0
TANH 28 - 1.14.0 1.14.0 2.3.0
PAD 34 PadOptions 1.5.0 1.14.0 2.4.0 2.6.0 2.20.0 2.23.0
UNIDIRECTIONAL_SEQUENCE_RNN 35 SequenceRNNOptions 1.14.0 1.14.0 2.3.0
GATHER 36 GatherOptions 1.6.0 1.14.0 1.15.0 2.4.0 2.5.0 2.13.0 2.15.0 2.23.0
TRANSPOSE 39 TransposeOptions 1.6.0 1.14.0 1.15.0 2.3.0 2.4.0 2.12.0 2.14.4 2.22.0 2.23.0
MEAN 40 ReducerOptions 1.6.0 1.14.0 2.4.0
SUB 41 SubOptions 1.6.0 1.14.0 2.3.0 2.4.0 2.4.0
DIV 42 DivOptions 1.6.0 2.3.0
SQUEEZE 43 SqueezeOptions 1.6.0 2.5.0
TOPK_V2 48 TopKV2Options 1.7.0 1.14.0 2.13.0
UNIDIRECTIONAL_SEQUENCE_LSTM 44 UnidirectionalSequenceLSTMOptions 1.13.1 1.14.0 2.3.0 2.12.0
STRIDED_SLICE 45 StridedSliceOptions 1.6.0 1.14.0 2.1.0 2.2.0 2.5.0 2.6.0 2.14.0 2.14.0
EXP 47 ExpOptions 1.7.0 2.12.0
SPLIT 49 SplitOptions 1.5.0 1.14.0 1.14.0 2.3.0 2.23.0
LOG_SOFTMAX 50 LogSoftmaxOptions 1.14.0 1.14.0
CAST 53 CastOptions 1.5.0 2.7.0 2.8.0 2.9.0 2.12.0 2.15.0 2.17.0 2.21.0 2.23.0
PRELU 54 - 1.8.0
MAXIMUM 55 MaximumMinimumOptions 1.14.0 1.14.0 2.3.0 2.3.0
ARG_MAX 56 ArgMaxOptions 1.9.0 1.14.0 2.9.0
MINIMUM 57 MaximumMinimumOptions 1.14.0 1.14.0 2.3.0 2.3.0
LESS 58 LessOptions 1.14.0 1.14.0 2.13.0
NEG 59 NegOptions 1.9.0
PADV2 60 PadV2Options 1.9.0 1.14.0 2.4.0 2.6.0 2.20.0 2.23.0
GREATER 61 GreaterOptions 1.14.0 1.14.0
GREATER_EQUAL 62 GreaterEqualOptions 1.14.0 1.14.0 2.13.0
LESS_EQUAL 63 LessEqualOptions 1.14.0 1.14.0
SELECT 64 SelectOptions 1.14.0 1.14.0 2.12.0 2.12.0
SLICE 65 SliceOptions 1.14.0 1.14.0 1.14.0 2.4.0 2.5.0 2.14.0 2.21.0 2.23.0
SIN 66 - 1.9.0 2.23.0
TRANSPOSE_CONV 67 TransposeConvOptions 1.9.0 2.2.0 2.3.0 2.13.0 2.15.0
TILE 69 TileOptions 1.10.1 2.2.0 2.8.0
EXPAND_DIMS 70 ExpandDimsOptions 1.10.0
EQUAL 71 EqualOptions 1.14.0 1.14.0 2.3.0 2.13.0 2.21.0
NOT_EQUAL 72 NotEqualOptions 1.14.0 1.14.0 2.3.0 2.21.0
LOG 73 - 1.14.0 2.15.0
SUM 74 ReducerOptions 1.10.0 1.15.0
SQRT 75 - 1.10.0 2.21.0
RSQRT 76 - 1.10.0 2.5.0 2.15.0
POW 78 PowOptions 1.10.0
ARG_MIN 79 ArgMinOptions 1.9.0 1.14.0 2.9.0
REDUCE_PROD 81 ReducerOptions 1.11.0 2.6.0
REDUCE_MAX 82 ReducerOptions 1.11.0 1.14.0 2.5.0
LOGICAL_OR 84 LogicalOrOptions 1.11.0
ONE_HOT 85 OneHotOptions 1.11.0
LOGICAL_AND 86 LogicalAndOptions 1.11.0
LOGICAL_NOT 87 LogicalNotOptions 1.11.0
REDUCE_MIN 89 ReducerOptions 1.11.0 1.14.0 2.5.0
SQUARE 92 SquareOptions 1.12.0
RESIZE_NEAREST_NEIGHBOR 97 ResizeNearestNeighborOptions 1.13.1 1.14.0 2.3.0 2.4.0
LEAKY_RELU 98 LeakyReluOptions 1.13.1 2.3.0
SQUARED_DIFFERENCE 99 SquaredDifferenceOptions 1.13.1 2.5.0
ABS 101 AbsOptions 1.13.0 2.4.0 2.5.0 2.6.0 2.12.0
SPLIT_V 102 SplitVOptions 1.13.1 2.3.0 2.23.0
CEIL 104 - 1.14.0
REVERSE_V2 105 ReverseV2Options 1.14.0 2.2.0 2.5.0 2.23.0
COS 108 CosOptions 1.14.0 2.23.0
ELU 111 - 1.14.0
IF 118 IfOptions 1.15.0
WHILE 119 WhileOptions 1.15.0
QUANTIZE 114 QuantizeOptions 1.14.0 1.15.0 2.7.0 2.21.0 2.21.0 2.21.0
ROUND 116 - 1.14.0
HARD_SWISH 117 HardSwishOptions 1.15.0
SELECT_V2 123 SelectV2Options 2.2.0 2.12.0
BATCH_MATMUL 126 BatchMatMulOptions 2.3.0 2.3.0 2.4.0 2.5.0
CUMSUM 128 CumsumOptions 2.4.0
CALL_ONCE 129 CallOnceOptions 2.6.0
BROADCAST_TO 130 BroadcastToOptions - 2.5.0 2.5.0 2.23.0
CONV_3D 132 Conv3DOptions 2.5.0
CONV_3D_TRANSPOSE 141 Conv3DOptions 2.6.0
VAR_HANDLE 142 VarHandleOptions 2.6.0
READ_VARIABLE 143 ReadVariableOptions 2.6.0
ASSIGN_VARIABLE 144 AssignVariableOptions 2.6.0
GELU 150 GeluOptions 2.9.0 2.9.0 2.23.0
SIGN 158 SignOptions 2.11.0 2.12.0
"""

# Operators that nxjax reads and does not write, with their numbers, and the options of those that have some.
_MORE: Final = """
DEPTH_TO_SPACE=5:DepthToSpace EMBEDDING_LOOKUP=7 HASHTABLE_LOOKUP=10 L2_NORMALIZATION=11:L2Norm L2_POOL_2D=12:Pool2D
LOCAL_RESPONSE_NORMALIZATION=13:LocalResponseNormalization LSH_PROJECTION=15 LSTM=16:LSTM RNN=24:RNN
SPACE_TO_DEPTH=26:SpaceToDepth SVDF=27:SVDF CONCAT_EMBEDDINGS=29 SKIP_GRAM=30 CALL=31:Call
EMBEDDING_LOOKUP_SPARSE=33:EmbeddingLookupSparse BATCH_TO_SPACE_ND=37
SPACE_TO_BATCH_ND=38
BIDIRECTIONAL_SEQUENCE_RNN=46:BidirectionalSequenceRNN DELEGATE=51
BIDIRECTIONAL_SEQUENCE_LSTM=52:BidirectionalSequenceLSTM SPARSE_TO_DENSE=68:SparseToDense SHAPE=77:Shape
FAKE_QUANT=80:FakeQuant PACK=83:Pack UNPACK=88:Unpack FLOOR_DIV=90 REDUCE_ANY=91:Reducer ZEROS_LIKE=93 FILL=94
FLOOR_MOD=95 RANGE=96 MIRROR_PAD=100:MirrorPad UNIQUE=103:Unique ADD_N=106 GATHER_ND=107 WHERE=109 RANK=110
REVERSE_SEQUENCE=112:ReverseSequence MATRIX_DIAG=113 MATRIX_SET_DIAG=115
NON_MAX_SUPPRESSION_V4=120 NON_MAX_SUPPRESSION_V5=121 SCATTER_ND=122 DENSIFY=124 SEGMENT_SUM=125
RFFT2D=131 IMAG=133 REAL=134 COMPLEX_ABS=135 HASHTABLE=136
HASHTABLE_FIND=137 HASHTABLE_IMPORT=138 HASHTABLE_SIZE=139 REDUCE_ALL=140:Reducer
BROADCAST_ARGS=145 RANDOM_STANDARD_NORMAL=146:Random
BUCKETIZE=147:Bucketize RANDOM_UNIFORM=148:Random MULTINOMIAL=149:Random DYNAMIC_UPDATE_SLICE=151 RELU_0_TO_1=152
UNSORTED_SEGMENT_PROD=153 UNSORTED_SEGMENT_MAX=154 UNSORTED_SEGMENT_SUM=155 ATAN2=156 UNSORTED_SEGMENT_MIN=157
BITCAST=159 BITWISE_XOR=160 RIGHT_SHIFT=161 STABLEHLO_LOGISTIC=162 STABLEHLO_ADD=163 STABLEHLO_DIVIDE=164
STABLEHLO_MULTIPLY=165 STABLEHLO_MAXIMUM=166 STABLEHLO_RESHAPE=167 STABLEHLO_CLAMP=168
STABLEHLO_CONCATENATE=169:StablehloConcatenate STABLEHLO_BROADCAST_IN_DIM=170:StablehloBroadcastInDim
STABLEHLO_CONVOLUTION=171:StablehloConvolution STABLEHLO_SLICE=172:StablehloSlice STABLEHLO_CUSTOM_CALL=173
STABLEHLO_REDUCE=174:StablehloReduce STABLEHLO_ABS=175 STABLEHLO_AND=176 STABLEHLO_COSINE=177 STABLEHLO_EXPONENTIAL=178
STABLEHLO_FLOOR=179 STABLEHLO_LOG=180 STABLEHLO_MINIMUM=181 STABLEHLO_NEGATE=182 STABLEHLO_OR=183 STABLEHLO_POWER=184
STABLEHLO_REMAINDER=185 STABLEHLO_RSQRT=186 STABLEHLO_SELECT=187 STABLEHLO_SUBTRACT=188 STABLEHLO_TANH=189
STABLEHLO_SCATTER=190:StablehloScatter STABLEHLO_COMPARE=191:StablehloCompare STABLEHLO_CONVERT=192
STABLEHLO_DYNAMIC_SLICE=193:StablehloDynamicSlice STABLEHLO_DYNAMIC_UPDATE_SLICE=194 STABLEHLO_PAD=195:StablehloPad
STABLEHLO_IOTA=196:StablehloIota STABLEHLO_DOT_GENERAL=197:StablehloDotGeneral
STABLEHLO_REDUCE_WINDOW=198:StablehloReduceWindow STABLEHLO_SORT=199:StablehloSort STABLEHLO_WHILE=200:StablehloWhile
STABLEHLO_GATHER=201:StablehloGather STABLEHLO_TRANSPOSE=202:StablehloTranspose DILATE=203
STABLEHLO_RNG_BIT_GENERATOR=204:StablehloRngBitGenerator REDUCE_WINDOW=205:ReduceWindow
STABLEHLO_COMPOSITE=206:StableHLOComposite STABLEHLO_SHIFT_LEFT=207 STABLEHLO_CBRT=208 STABLEHLO_CASE=209:StablehloCase
"""


@final
@dataclass(frozen=True)
class Builtin:
    """An operator: its number, its options' table or None, and the runtime that brought each of its versions."""

    code: int
    options: str | None
    runtimes: tuple[str, ...]


def _builtins() -> dict[str, Builtin]:
    rows = (line.split() for line in _OPERATORS.replace("\n  ", " ").strip().splitlines())
    return {name: Builtin(int(code), options if options != "-" else None, tuple(r)) for name, code, options, *r in rows}


def _schema() -> Schema:
    members, more = ([name + "Options" for name in names.split()] for names in (_OPTIONS, _OPTIONS_2))
    empty = {b.options for b in BUILTINS.values() if b.options} - {line.split(":")[0] for line in _TABLES.splitlines()}
    tables = _TABLES + "".join(f"{name}:\n" for name in sorted(empty))
    unions = {
        "BuiltinOptions": members,
        "BuiltinOptions2": more,
        "QuantizationDetails": ["CustomQuantization", "BlockwiseQuantization"],
        "SparseIndexVector": ["Int32Vector", "Uint16Vector", "Uint8Vector"],
    }
    return Schema(tables, unions)


def _options() -> dict[str, str | None]:
    known = {name: b.options for name, b in BUILTINS.items()}
    rows = (word.partition(":") for word in _MORE.split())
    return {**known, **{name.partition("=")[0]: table + "Options" if table else None for name, _, table in rows}}


BUILTINS: Final = _builtins()
# Every operator that the format has: its name by its number, and the table of its options.
BUILTIN_NAMES: Final = {
    **{b.code: name for name, b in BUILTINS.items()},
    **{int(word.partition("=")[2].partition(":")[0]): word.partition("=")[0] for word in _MORE.split()},
}
OPTIONS: Final = _options()
SCHEMA: Final = _schema()
