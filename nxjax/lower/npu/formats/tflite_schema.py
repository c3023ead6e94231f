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

_TABLES: Final = """
Model: version:u32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:str buffers:[Buffer]
  metadata_buffer:[i32] metadata:[Metadata] signature_defs:[SignatureDef]
OperatorCode: deprecated_builtin_code:i8 custom_code:str version:i32=1 builtin_code:i32
SubGraph: tensors:[Tensor] inputs:[i32] outputs:[i32] operators:[Operator] name:str
Tensor: shape:[i32] type:i8 buffer:u32 name:str quantization:QuantizationParameters is_variable:bool
  sparsity:Anything shape_signature:[i32] has_rank:bool
QuantizationParameters: min:[f32] max:[f32] scale:[f32] zero_point:[i64] details:QuantizationDetails
  quantized_dimension:i32
Operator: opcode_index:u32 inputs:[i32] outputs:[i32] builtin_options:BuiltinOptions custom_options:[u8]
  custom_options_format:i8 mutating_variable_inputs:[bool] intermediates:[i32]
Buffer: data:bytes offset:u64 size:u64
Metadata: name:str buffer:u32
SignatureDef: inputs:[TensorMap] outputs:[TensorMap] signature_key:str deprecated_tag:str subgraph_index:u32
TensorMap: name:str tensor_index:u32
Anything:
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
GATHER 36 GatherOptions 1.6.0 1.14.0 1.15.0 2.4.0 2.5.0 2.13.0 2.15.0 2.23.0
TRANSPOSE 39 TransposeOptions 1.6.0 1.14.0 1.15.0 2.3.0 2.4.0 2.12.0 2.14.4 2.22.0 2.23.0
MEAN 40 ReducerOptions 1.6.0 1.14.0 2.4.0
SUB 41 SubOptions 1.6.0 1.14.0 2.3.0 2.4.0 2.4.0
DIV 42 DivOptions 1.6.0 2.3.0
SQUEEZE 43 SqueezeOptions 1.6.0 2.5.0
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
QUANTIZE 114 QuantizeOptions 1.14.0 1.15.0 2.7.0 2.21.0 2.21.0 2.21.0
ROUND 116 - 1.14.0
HARD_SWISH 117 HardSwishOptions 1.15.0
SELECT_V2 123 SelectV2Options 2.2.0 2.12.0
BATCH_MATMUL 126 BatchMatMulOptions 2.3.0 2.3.0 2.4.0 2.5.0
CUMSUM 128 CumsumOptions 2.4.0
BROADCAST_TO 130 BroadcastToOptions - 2.5.0 2.5.0 2.23.0
GELU 150 GeluOptions 2.9.0 2.9.0 2.23.0
SIGN 158 SignOptions 2.11.0 2.12.0
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
    members = [name + "Options" for name in _OPTIONS.split()]
    empty = {b.options for b in BUILTINS.values() if b.options} - {line.split(":")[0] for line in _TABLES.splitlines()}
    tables = _TABLES + "".join(f"{name}:\n" for name in sorted(empty))
    unions = {"BuiltinOptions": members, "QuantizationDetails": ["CustomQuantization", "BlockwiseQuantization"]}
    return Schema(tables, unions)


BUILTINS: Final = _builtins()
BUILTIN_NAMES: Final = {b.code: name for name, b in BUILTINS.items()}
SCHEMA: Final = _schema()
