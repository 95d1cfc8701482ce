// The project's own CUDA kernels as a table of functions on raw pointers and a stream; nothing of CUDA is needed to include it.
//
// Where nvcc was there when a program was built, its table is compiled(): cmake/compiled/cuda/kernels.cu, which defines each
// kernel from its header (NAME.cuh). Elsewhere compiled() is null, and callers use operators of their library instead. Any of
// them can be switched off, so that a caller's two ways can be compared: use(), in_use().
//
// Every pointer is one of the device's memory; rows are contiguous unless a stride (in elements) says otherwise. A launcher
// returns CUDA's error of the launch (0 = none) and waits for nothing; it launches nothing where there is nothing to do.
// Sums are in float32, in an order that depends on shapes alone: equal inputs give equal bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rlalgo::cuda {

using Stream = void*;  // a cudaStream_t
using Graph = void*;   // a cudaGraphExec_t

enum class Element { float32, bfloat16 };

// y = w·round(x·r), r = (mean x² + ε)^(−½) of each row; the product x·r is rounded to the element, as transformers' Llama does.
// With `once` it is not; with `one_more`, Gemma's norm, y = (1 + w)·x·r, rounded once. With `residual`, x ← x + residual first, in
// place.
struct RmsNorm {
  void* x = nullptr;               // [rows, width]; written to only with a residual
  const void* residual = nullptr;  // [rows, width], or null
  const void* weight = nullptr;    // [width]
  void* y = nullptr;               // [rows, width]
  float* scale = nullptr;          // [rows] r, or null
  std::int64_t rows = 0, width = 0;
  float epsilon = 0.0F;
  bool one_more = false, once = false;
  Element element = Element::float32;
};

// ∂x = r·w·∂y − x·r³/width·Σ w·∂y·x, plus what is in grad_x where `add`; ∂w += Σ_rows ∂y·x·r.
struct RmsNormGradient {
  const void* grad_y = nullptr;  // [rows, width]
  const void* x = nullptr;       // [rows, width]
  const void* weight = nullptr;  // [width]
  const float* scale = nullptr;  // [rows]
  void* grad_x = nullptr;        // [rows, width]
  void* grad_weight = nullptr;   // [width], or null
  float* partial = nullptr;      // [rms_norm_chunks(rows), width]; of grad_weight
  std::int64_t rows = 0, width = 0;
  bool one_more = false;
  bool add = false;
  Element element = Element::float32;
};
// Rows are summed in so many chunks.
[[nodiscard]] constexpr std::int64_t rms_norm_chunks(std::int64_t rows) {
  constexpr std::int64_t least = 32, most = 128;
  const std::int64_t chunks = (rows + least - 1) / least;
  return chunks < most ? chunks : most;
}

// (x_i, x_{i+half}) ← (x_i cos − x_{i+half} sin, x_{i+half} cos + x_i sin), in place, of the first 2·half elements of a head;
// `interleaved`: (x_{2i}, x_{2i+1}) in the place of (x_i, x_{i+half}); `backward` by −θ.
struct Rotate {
  void* x = nullptr;  // [tokens, heads, width]
  const float* cosine = nullptr;
  const float* sine = nullptr;  // [tokens, half]
  std::int64_t tokens = 0, heads = 0, half = 0, width = 0;
  bool backward = false, interleaved = false;
  Element element = Element::float32;
};

// SwiGLU (silu) or GeGLU (GELU in its form with tanh): y = round(act(gate))·up.
enum class Activation { silu, gelu_tanh };
// Where `width` is not 0, gate and up are rows of so many elements, `stride` elements apart: halves of one product.
struct Gated {
  const void* gate = nullptr;
  const void* up = nullptr;
  void* out = nullptr;  // [count]; may be gate where rows are not apart
  std::int64_t count = 0, width = 0, stride = 0;
  Activation activation = Activation::silu;
  Element element = Element::float32;
};
// Puts ∂gate = round(∂y·up)·act'(gate) in the place of gate and ∂up = ∂y·round(act(gate)) in that of up.
struct GatedGradient {
  const void* grad = nullptr;
  void* gate = nullptr;
  void* up = nullptr;  // [count]
  std::int64_t count = 0, width = 0, stride = 0;
  Activation activation = Activation::silu;
  Element element = Element::float32;
};

// out[s] += Σ x[order[p]] over the places p whose segment is s, in their order; the sum is rounded once. `segment` rises;
// places of one segment stand together.
struct SegmentSum {
  const void* x = nullptr;                // [·, width]
  const std::int64_t* order = nullptr;    // [places] rows of x
  const std::int64_t* segment = nullptr;  // [places] rows of out
  void* out = nullptr;                    // [·, width]
  std::int64_t places = 0, width = 0;
  Element element = Element::float32;
};

// Where a layer's keys and values lie in an arena of pages of 32 positions; strides in elements. Key or value element d of
// head h at position p of a page: arena[page·page_stride + offset + p·position_stride + h·head_stride + d]. With `float8` elements of the
// arena are e4m3 (float8.cuh), numbers beyond ±448 at the largest; else they are those of what is stored.
inline constexpr int page_length = 32;
struct Pages {
  std::int64_t page_stride = 0, key_offset = 0, value_offset = 0, position_stride = 0, head_stride = 0;
  bool float8 = false;
};

// Of one joined product a row's queries, keys and values: with a bias, normalised per head where there are weights (as RmsNorm, each head by
// itself), rotated (as Rotate, by row positions[row] of the table), queries to q, keys and values to their places in pages. A row whose
// position is below 0 has queries of 0, and nothing is written to pages.
struct Heads {
  const void* joined = nullptr;  // [rows, heads + 2 kv_heads, head_dim]
  const void* bias = nullptr;    // [heads + 2 kv_heads, head_dim], or null
  const void* q_weight = nullptr;
  const void* k_weight = nullptr;  // [head_dim] each, or null: no norm
  float epsilon = 0.0F;
  bool one_more = false, once = false;
  const float* cosine = nullptr;  // [·, half], or null: no rotation
  const float* sine = nullptr;
  const std::int64_t* positions = nullptr;  // [rows]
  std::int64_t half = 0;
  bool interleaved = false;
  void* q = nullptr;  // [rows, heads, head_dim]
  void* arena = nullptr;
  const std::int64_t* page = nullptr;
  const std::int64_t* place = nullptr;                           // [rows]
  std::int64_t rows = 0, heads = 0, kv_heads = 0, head_dim = 0;  // head_dim at most heads_width
  Pages pages;
  Element element = Element::float32;
};
inline constexpr int heads_width = 256;

// What attention over a whole batch reads, of each token's queries, keys and values as their maps give them: queries and keys normalised per
// head where there are weights (as RmsNorm, each head by itself) and rotated (as Rotate); the queries, and behind each other the keys and
// values of tokens[0], tokens[1], … Index 0 is of queries, 1 of keys, 2 of values.
struct UnrolledHeads {
  const void* from[3] = {};              // [rows, heads, head_dim], [rows, kv_heads, head_dim] ×2
  std::int64_t stride[3] = {};           // elements from one row of these to the next
  const void* weight[2] = {};            // [head_dim] each, or null: no norm
  const float* cosine = nullptr;         // [rows, half], or null: no rotation
  const float* sine = nullptr;           //
  const std::int64_t* tokens = nullptr;  // [keys], or null: every row once
  void* to[3] = {};                      // [rows, heads, head_dim], [keys, kv_heads, head_dim] ×2
  std::int64_t rows = 0, keys = 0, heads = 0, kv_heads = 0, head_dim = 0,
               half = 0;  // head_dim is even, at most heads_width
  float epsilon = 0.0F;
  bool one_more = false, once = false, interleaved = false;
  Element element = Element::float32;
};
// The gradients of `of.from`, of those of `of.to`. A row's are summed over its keys, order[first[row]] … order[first[row + 1] − 1].
struct UnrolledHeadsGradient {
  UnrolledHeads of;                     // its `to` is not used
  const void* grad[3] = {};             // as of.to
  const std::int64_t* first = nullptr;  // [rows + 1]
  const std::int64_t* order = nullptr;  // [keys]; both null: every row has one key, its own
  void* out[3] = {};                    // as of.from
  std::int64_t out_stride[3] = {};
  void* grad_weight[2] = {};  // added to; null: not wanted
  float* partial = nullptr;   // [2, unrolled_heads_chunks(rows, heads), head_dim], where one is
};
// Gradients of the weights are summed in so many chunks.
[[nodiscard]] constexpr std::int64_t unrolled_heads_chunks(std::int64_t rows, std::int64_t heads) {
  constexpr std::int64_t least = 64, most = 264;
  const std::int64_t chunks = (rows * heads + least - 1) / least;
  return chunks < most ? chunks : most;
}

// Elements [row, row + rows) × [column, column + columns) of a matrix in bits (model/quantised_weight.hpp), float32 and rounded once. Of 4
// bits: values[code]·scale of the block; of 8: code·(scale of the row·(1/127)).
struct Dequantise {
  const std::uint8_t* codes = nullptr;  // of 4 bits two in a byte, the first in the upper half; of 8 signed
  const void* scales = nullptr;  // of 4 bits [·] of blocks, float32 or (nested) codes; of 8 float32 [·] of rows
  const float* scale_values = nullptr;  // [256] nested: what codes of scales stand for, times
  const float* scale_scales = nullptr;  // [·] of groups of blocks,
  float scale_offset = 0.0F;            // and this besides; null: not nested
  float values[16] = {};                // of 4 bits: what codes stand for
  int bits = 4;
  std::int64_t width = 0;  // of the whole matrix
  std::int64_t row = 0, rows = 0, column = 0, columns = 0;
  std::int64_t block = 0, group = 0;  // powers of two
  void* out = nullptr;                // [rows, columns]
  Element element = Element::float32;
};
inline constexpr std::int64_t dequantise_most = std::int64_t{1} << 31U;  // rows·columns are fewer

// Puts keys and values of rows to their places.
struct PageWrite {
  const void* k = nullptr;
  const void* v = nullptr;  // [rows, heads, head_dim]
  void* arena = nullptr;
  const std::int64_t* page = nullptr;
  const std::int64_t* place = nullptr;  // [rows]
  std::int64_t rows = 0, heads = 0, head_dim = 0;
  Pages pages;
  Element element = Element::float32;
};

// o = Σ_j softmax_j(cap(q·k_j·scale)) v_j over the positions j ≤ `position` of a row's sequence (with a window, the last
// `window` of them), cap(s) = softcap·tanh(s / softcap); bfloat16, keys and values also float8. Query head h reads key head
// h / (heads/kv_heads).
struct DecodeAttention {
  const std::uint16_t* q = nullptr;         // [rows, heads, head_dim]
  const void* arena = nullptr;              // 8 elements are aligned, and so are all strides
  const std::int64_t* table = nullptr;      // [rows, max_pages] numbers of pages
  const std::int64_t* positions = nullptr;  // [rows]; −1: the row sees nothing, and is 0
  float* partial = nullptr;                 // decode_partial_floats(…)
  // [decode_counters(…)], zeros before and after: the last of a row's blocks merges them, in one launch. Null: a second launch does.
  std::uint32_t* arrived = nullptr;
  std::uint16_t* out = nullptr;  // [rows, heads, head_dim]
  float* log_sum = nullptr;      // [rows, heads] log Σ exp, or null
  std::int64_t rows = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;  // head_dim a multiple of 8, at most 256
  int max_pages = 0;
  std::int64_t window = 0;  // 0: none
  float softcap = 0.0F;     // 0: none
  float scale = 1.0F;
  Pages pages;
};
inline constexpr int decode_chunk = 256;  // positions that one block attends to
[[nodiscard]] constexpr int decode_width(int head_dim) { return (head_dim + 63) / 64 * 64; }
[[nodiscard]] constexpr int decode_chunks(int max_pages) {
  return (max_pages * page_length + decode_chunk - 1) / decode_chunk;
}
[[nodiscard]] constexpr std::int64_t decode_counters(std::int64_t rows, int heads) { return rows * heads; }
[[nodiscard]] constexpr std::int64_t decode_partial_floats(std::int64_t rows, int heads, int head_dim, int max_pages) {
  return rows * heads * decode_chunks(max_pages) * (decode_width(head_dim) + 2);
}

// Log-probs of a vocabulary that is seen in tiles. A row's state is [4]: maximum, Σ exp(l − maximum),
// Σ exp(l − maximum)(l − maximum), logit of the target.
struct LogProbTile {
  const float* logits = nullptr;          // [rows, columns], row stride `stride`
  const std::int64_t* targets = nullptr;  // [rows]
  float* state = nullptr;                 // [rows, 4]
  std::int64_t rows = 0, columns = 0, stride = 0;
  std::int64_t first_column = 0;  // of the vocabulary; 0 begins the state
};
// log_sum = log Σ exp l, log_prob = l_target − log_sum, entropy = log_sum − Σ p·l, greedy: 1 where no logit is larger.
struct LogProbFinish {
  const float* state = nullptr;  // [rows, 4]
  float* log_sum = nullptr;
  float* log_prob = nullptr;
  float* entropy = nullptr;  // [rows] each; null: not wanted
  float* greedy = nullptr;
  std::int64_t rows = 0;
};
// ∂l_j = g·(1[j = target] − p_j) − h·p_j·(log p_j + entropy): g the gradient of the log-prob, h of the entropy.
struct LogProbGradient {
  const float* logits = nullptr;  // [rows, columns], row stride `stride`
  const std::int64_t* targets = nullptr;
  const float* log_sum = nullptr;
  const float* entropy = nullptr;
  const float* grad_log_prob = nullptr;
  const float* grad_entropy = nullptr;  // [rows] each; of the entropy null: none
  void* grad = nullptr;                 // [rows, columns], row stride `grad_stride`; may be logits, in float32
  std::int64_t rows = 0, columns = 0, stride = 0, grad_stride = 0;
  std::int64_t first_column = 0;
  Element element = Element::float32;  // of grad
};

// Answers what is asked of rows of logits as inference::TokenDraw does with its portable kernels: exp by the same polynomial, partial
// sums of 512 ids in eight lanes, what is kept by top_k, top_p and min_p in the same order, the smallest id whose cumulative mass
// exceeds u = uniform({seed, sampling}, step, index·2³² + position). Equal logits give its tokens and log-probs.
struct DrawAsk {
  std::int64_t row = 0;  // of the logits
  std::uint64_t seed = 0, step = 0, index = 0;
  std::uint32_t position = 0;
  float scale = 1.0F;       // 1 / temperature in float32; 0 or infinite: greedy
  std::int32_t given = -1;  // nothing is drawn: the log-prob and the rank of this id
  std::int32_t top_k = 0;   // 0: all
  double top_p = 1.0, min_p = 0.0;
  float penalty = 1.0F;                             // ρ: l > 0 ? l/ρ : l·ρ
  std::int32_t first_seen = 0, seen = 0;            // … of these of Draw::ids, each once
  std::int32_t first_forbidden = 0, forbidden = 0;  // of Draw::ids: their logits become draw_forbidden
  std::int32_t edited = -1;                         // row of Draw::edited for the logits that these two change
  std::int32_t of_model = 0;                        // 1: log-probs are those of log_softmax(l)
  std::int32_t likely = 0;                          // so many of the most likely ids
};
inline constexpr std::int32_t draw_not_finite = -1, draw_not_known = -2;
struct DrawAnswer {
  std::int32_t token = 0;   // draw_not_finite: a logit is not; draw_not_known: more ids are kept than a block holds
  float log_prob = 0.0F;    //
  std::int32_t rank = 0;    // of a given id: 1 + the number of ids with a larger logit
  std::int32_t likely = 0;  // how many there are
};
struct DrawLikely {
  std::int32_t id = 0;
  float log_prob = 0.0F;
};
struct Draw {
  const float* logits = nullptr;                                        // [rows, vocabulary], row stride `stride`
  const DrawAsk* asks = nullptr;                                        // [count]
  const std::int32_t* ids = nullptr;                                    // that asks name
  float* edited = nullptr;                                              // [edited rows, vocabulary]
  DrawAnswer* answers = nullptr;                                        // [count]
  DrawLikely* likely = nullptr;                                         // [count, likely_each], the most likely first
  std::int64_t count = 0, vocabulary = 0, stride = 0, likely_each = 0;  // vocabulary at most draw_vocabulary
};
inline constexpr std::int64_t draw_vocabulary = std::int64_t{1} << 21U;
inline constexpr int draw_kept = 2048;           // ids that a block holds
inline constexpr float draw_forbidden = -1e30F;  // far below every logit, and still a number

// Zeros in the place of elements whose random word is below `threshold`, and x·keep of the others: word n mod 4 of the Philox block
// (seed, dropout; draw, module·2⁴⁰ + n/4), n the number of the element, as model::DropoutMask names them.
struct Dropout {
  const void* x = nullptr;             // [count]
  void* out = nullptr;                 // [count]
  const std::int64_t* rows = nullptr;  // [count/width] numbers of the rows, or null: all of them
  std::int64_t count = 0, width = 0;
  std::uint64_t seed = 0, draw = 0, module = 0;
  std::uint32_t threshold = 0;
  float keep = 1.0F;
  Element element = Element::float32;
};

// One update of AdamW with moments in 8 bits (optim/adamw_8bit.hpp) of several parameters. Blocks of 256 elements of a parameter follow
// each other in memory that all parameters share; the bits are those of the CPU.
inline constexpr int adamw_8bit_block = 256, adamw_8bit_most = 56;
struct AdamW8bitItem {
  const void* gradient = nullptr;
  float* master = nullptr;
  void* value = nullptr;  // its rounding, like the gradient; null: the master is the parameter
  std::int64_t elements = 0;
  std::int64_t block = 0;  // its first one in the shared memory
  std::int32_t number = 0;
  float kept = 1.0F;  // 1 − lr·λ
};
struct AdamW8bit {
  AdamW8bitItem items[adamw_8bit_most] = {};
  std::int32_t first[adamw_8bit_most] = {};  // blocks of the items before each
  std::int32_t count = 0, blocks = 0;        // items, and all of their blocks
  std::uint8_t* m = nullptr;
  std::uint8_t* v = nullptr;  // [·, 256] codes
  float* m_scale = nullptr;
  float* v_scale = nullptr;      // [·]
  const float* sizes = nullptr;  // by number: −lr/(1 − β₁ᵗ)
  const float* roots = nullptr;  // √(1 − β₂ᵗ)
  // [4, 256]: what codes of m and of v stand for, and the halves between neighbours, of which the last is not read.
  const float* tables = nullptr;
  const float* divisor = nullptr;  // [] of the gradients, or null
  const float* skip = nullptr;     // [] not 0: nothing is changed; or null
  float beta1 = 0.0F, rest1 = 0.0F, beta2 = 0.0F, rest2 = 0.0F, epsilon = 0.0F;
  Element element = Element::float32;  // of gradients
};
static_assert(sizeof(AdamW8bit) <= 4096, "what a launch can be given");

// y = x Ŵᵀ, with `add` y + x Ŵᵀ; x and y in bfloat16, Ŵ in bytes: a code times the scale of its group of 32 columns (int8), or of its row
// (e4m3). Rows of codes are whole groups, zeros behind the last column. A row of y has the same bits whichever rows are multiplied with it.
enum class Code8bit { int8, e4m3 };
struct Product8bit {
  const void* x = nullptr;              // [rows, inner]
  const std::uint8_t* codes = nullptr;  // [columns, 32·product_8bit_groups(inner)], 8-byte aligned
  const float* scales = nullptr;        // [columns, groups] of int8, [columns] of e4m3
  void* y = nullptr;                    // [rows, columns]
  std::int64_t rows = 0, inner = 0, columns = 0;
  bool add = false;
  Code8bit code = Code8bit::int8;
};
inline constexpr std::int64_t product_8bit_group = 32;
[[nodiscard]] constexpr std::int64_t product_8bit_groups(std::int64_t inner) {
  return (inner + product_8bit_group - 1) / product_8bit_group;
}

struct Kernels {
  int (*rms_norm)(const RmsNorm&, Stream) = nullptr;
  int (*rms_norm_gradient)(const RmsNormGradient&, Stream) = nullptr;
  int (*rotate)(const Rotate&, Stream) = nullptr;
  int (*gated)(const Gated&, Stream) = nullptr;
  int (*gated_gradient)(const GatedGradient&, Stream) = nullptr;
  int (*segment_sum)(const SegmentSum&, Stream) = nullptr;
  int (*heads)(const Heads&, Stream) = nullptr;
  int (*unrolled_heads)(const UnrolledHeads&, Stream) = nullptr;
  int (*unrolled_heads_gradient)(const UnrolledHeadsGradient&, Stream) = nullptr;
  int (*dequantise)(const Dequantise&, Stream) = nullptr;
  int (*page_write)(const PageWrite&, Stream) = nullptr;
  int (*decode_attention)(const DecodeAttention&, Stream) = nullptr;
  int (*log_prob_tile)(const LogProbTile&, Stream) = nullptr;
  int (*log_prob_finish)(const LogProbFinish&, Stream) = nullptr;
  int (*log_prob_gradient)(const LogProbGradient&, Stream) = nullptr;
  int (*draw)(const Draw&, Stream) = nullptr;
  int (*dropout)(const Dropout&, Stream) = nullptr;
  int (*adamw_8bit)(const AdamW8bit&, Stream) = nullptr;
  int (*product_8bit)(const Product8bit&, Stream) = nullptr;
  const char* (*error_text)(int error) = nullptr;
  // What is launched on a stream between begin and end is not computed but recorded, and computed at each replay. Not the stream that
  // everything else waits for.
  int (*graph_begin)(Stream) = nullptr;
  int (*graph_end)(Stream, Graph*) = nullptr;
  int (*graph_replay)(Graph, Stream) = nullptr;
  void (*graph_free)(Graph) = nullptr;
};

// The table of this program; null where it was built without nvcc.
[[nodiscard]] inline const Kernels*& compiled() {
  static const Kernels* table = nullptr;
  return table;
}

// What can be switched off, by itself; a name is one kernel and its gradient. flash_attention is LibTorch's, and in no table.
enum class Kernel {
  rms_norm,
  rotate,
  gated,
  segment_sum,
  decode_attention,
  log_prob,
  draw,
  dropout,
  adamw_8bit,
  product_8bit,
  unrolled_heads,
  dequantise,
  flash_attention
};
inline constexpr std::array<std::string_view, 13> kernel_names{
    "rms_norm", "rotate",     "gated",        "segment_sum",    "decode_attention", "log_prob",       "draw",
    "dropout",  "adamw_8bit", "product_8bit", "unrolled_heads", "dequantise",       "flash_attention"};

namespace detail {
inline std::array<bool, kernel_names.size()>& switched_off() {
  static std::array<bool, kernel_names.size()> off = {};
  return off;
}
}  // namespace detail

// Whether callers use the kernel where it was compiled: for the whole program, and before others compute.
inline void use(Kernel kernel, bool on) { detail::switched_off()[static_cast<std::size_t>(kernel)] = !on; }
[[nodiscard]] inline bool in_use(Kernel kernel) { return !detail::switched_off()[static_cast<std::size_t>(kernel)]; }

}  // namespace rlalgo::cuda
