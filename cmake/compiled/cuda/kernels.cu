// The table of cuda/kernels.hpp, compiled by nvcc: a program that has this object has the kernels.
#include <rlalgo/cuda/adamw_8bit.cuh>
#include <rlalgo/cuda/decode_attention.cuh>
#include <rlalgo/cuda/dequantise.cuh>
#include <rlalgo/cuda/draw.cuh>
#include <rlalgo/cuda/dropout.cuh>
#include <rlalgo/cuda/gated.cuh>
#include <rlalgo/cuda/heads.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/log_prob.cuh>
#include <rlalgo/cuda/page_write.cuh>
#include <rlalgo/cuda/product_8bit.cuh>
#include <rlalgo/cuda/rms_norm.cuh>
#include <rlalgo/cuda/rotate.cuh>
#include <rlalgo/cuda/segment_sum.cuh>
#include <rlalgo/cuda/unrolled_heads.cuh>

namespace rlalgo::cuda {

namespace {

template <auto Launcher, class Arguments>
int launched(const Arguments& arguments, Stream stream) {
  return static_cast<int>(Launcher(arguments, static_cast<cudaStream_t>(stream)));
}

#ifdef __CUDACC__
int graph_begin(Stream stream) {
  return static_cast<int>(cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal));
}
int graph_end(Stream stream, Graph* out) {
  cudaGraph_t recorded = nullptr;
  cudaGraphExec_t made = nullptr;
  cudaError_t error = cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &recorded);
  if (error == cudaSuccess) error = cudaGraphInstantiate(&made, recorded, 0);
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  *out = made;
  return static_cast<int>(error);
}
int graph_replay(Graph graph, Stream stream) {
  return static_cast<int>(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)));
}
void graph_free(Graph graph) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }
#else
// Host code has no streams to record.
constexpr auto graph_begin = nullptr, graph_end = nullptr, graph_replay = nullptr, graph_free = nullptr;
#endif

const Kernels table{.rms_norm = launched<rms_norm, RmsNorm>,
                    .rms_norm_gradient = launched<rms_norm_gradient, RmsNormGradient>,
                    .rotate = launched<rotate, Rotate>,
                    .gated = launched<gated, Gated>,
                    .gated_gradient = launched<gated_gradient, GatedGradient>,
                    .segment_sum = launched<segment_sum, SegmentSum>,
                    .heads = launched<heads, Heads>,
                    .unrolled_heads = launched<unrolled_heads, UnrolledHeads>,
                    .unrolled_heads_gradient = launched<unrolled_heads_gradient, UnrolledHeadsGradient>,
                    .dequantise = launched<dequantise, Dequantise>,
                    .page_write = launched<page_write, PageWrite>,
                    .decode_attention = launched<decode_attention, DecodeAttention>,
                    .log_prob_tile = launched<log_prob_tile, LogProbTile>,
                    .log_prob_finish = launched<log_prob_finish, LogProbFinish>,
                    .log_prob_gradient = launched<log_prob_gradient, LogProbGradient>,
                    .draw = launched<draw, Draw>,
                    .dropout = launched<dropout, Dropout>,
                    .adamw_8bit = launched<adamw_8bit, AdamW8bit>,
                    .product_8bit = launched<product_8bit, Product8bit>,
                    .error_text = [](int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); },
                    .graph_begin = graph_begin,
                    .graph_end = graph_end,
                    .graph_replay = graph_replay,
                    .graph_free = graph_free};

[[maybe_unused]] const bool registered = (compiled() = &table, true);

}  // namespace

}  // namespace rlalgo::cuda
