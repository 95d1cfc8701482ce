#include "far_kernels.hpp"

#include <atomic>
#include <stdexcept>
#include <utility>

#include <ATen/ATen.h>

#include "far_device.hpp"
#include "host_kernels.hpp"
#include "plain_varlen.hpp"

namespace rlalgo::support::far {

namespace {

std::atomic<int> launches_left{-1};  // before one fails; −1: none does
bool refused() {
  int left = launches_left.load();
  while (left >= 0)
    if (launches_left.compare_exchange_weak(left, left - 1)) return left == 0;
  return false;
}
constexpr int out_of_resources = 701;  // cudaErrorLaunchOutOfResources
constexpr int illegal_address = 700;   // cudaErrorIllegalAddress
const char* text_of(int error) {
  if (error == illegal_address) return "an illegal memory access was encountered";
  return error == out_of_resources ? "too many resources requested for launch" : "unknown error";
}

template <auto Launcher>
struct Far;
template <class A, int (*cuda::Kernels::*Launcher)(const A&, cuda::Stream)>
struct Far<Launcher> {
  static int launch(const A& arguments, cuda::Stream) {
    if (broken()) return illegal_address;
    if (refused()) return out_of_resources;
    run_kernel([arguments] {
      const std::int64_t before = host_launches();
      if ((cuda::compiled()->*Launcher)(arguments, nullptr) != 0) throw std::runtime_error("a kernel was refused");
      count_kernels(host_launches() - before);
    });
    return 0;
  }
};
template <auto Launcher>
constexpr auto far = &Far<Launcher>::launch;

// One launch, by the host's operators while it may reach the memory.
class FarVarlen final : public tensor::VarlenAttention {
 public:
  [[nodiscard]] bool takes(const at::Tensor& q) const override { return plain_.takes(q); }
  [[nodiscard]] tensor::VarlenOutput forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const tensor::VarlenSequences& s) const override {
    const tensor::VarlenOutput out{at::empty_like(q),
                                   q.new_empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat))};
    run_kernel([&] {
      const auto found = plain_.forward(here(q), here(k), here(v), here(s));
      here(out.value).copy_(found.value);
      here(out.log_sum).copy_(found.log_sum);
    });
    count_kernels(1);
    return out;
  }
  [[nodiscard]] tensor::VarlenGradient backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v, const tensor::VarlenOutput& out,
                                                const tensor::VarlenSequences& s) const override {
    const tensor::VarlenGradient g{at::empty_like(q), at::empty_like(k), at::empty_like(v)};
    run_kernel([&] {
      const auto found =
          plain_.backward(here(grad), here(q), here(k), here(v), {here(out.value), here(out.log_sum)}, here(s));
      here(g.q).copy_(found.q);
      here(g.k).copy_(found.k);
      here(g.v).copy_(found.v);
    });
    count_kernels(1);
    return g;
  }

 private:
  static at::Tensor here(const at::Tensor& x) {
    TORCH_CHECK(x.is_contiguous(), "a kernel is given memory with gaps");
    return at::from_blob(const_cast<void*>(x.const_data_ptr()), x.sizes(), at::TensorOptions().dtype(x.scalar_type()));
  }
  static tensor::VarlenSequences here(tensor::VarlenSequences s) {
    s.query_ends = here(s.query_ends);
    s.key_ends = here(s.key_ends);
    return s;
  }
  support::PlainVarlen plain_;
};

int begin(cuda::Stream) {
  begin_graph();
  return 0;
}
int end(cuda::Stream, cuda::Graph* out) {
  *out = new Graph(end_graph());
  return 0;
}
int replay_graph(cuda::Graph graph, cuda::Stream) {
  if (broken()) return illegal_address;
  if (refused()) return out_of_resources;
  replay(*static_cast<const Graph*>(graph));
  return 0;
}
void free_graph(cuda::Graph graph) { delete static_cast<Graph*>(graph); }

}  // namespace

tensor::OwnKernels kernels() {
  using K = cuda::Kernels;
  static const K table{.rms_norm = far<&K::rms_norm>,
                       .rms_norm_gradient = far<&K::rms_norm_gradient>,
                       .rotate = far<&K::rotate>,
                       .gated = far<&K::gated>,
                       .gated_gradient = far<&K::gated_gradient>,
                       .segment_sum = far<&K::segment_sum>,
                       .heads = far<&K::heads>,
                       .unrolled_heads = far<&K::unrolled_heads>,
                       .unrolled_heads_gradient = far<&K::unrolled_heads_gradient>,
                       .dequantise = far<&K::dequantise>,
                       .page_write = far<&K::page_write>,
                       .decode_attention = far<&K::decode_attention>,
                       .log_prob_tile = far<&K::log_prob_tile>,
                       .log_prob_finish = far<&K::log_prob_finish>,
                       .log_prob_gradient = far<&K::log_prob_gradient>,
                       .draw = far<&K::draw>,
                       .dropout = far<&K::dropout>,
                       .adamw_8bit = far<&K::adamw_8bit>,
                       .product_8bit = far<&K::product_8bit>,
                       .error_text = text_of,
                       .graph_begin = begin,
                       .graph_end = end,
                       .graph_replay = replay_graph,
                       .graph_free = free_graph};
  static const FarVarlen varlen;
  return {.table = &table, .device = device().type(), .varlen = &varlen};
}

void fail_launch(int good) { launches_left = good; }

WithKernels::WithKernels() : before_(std::exchange(tensor::own_kernels(), kernels())) {}
WithKernels::~WithKernels() { tensor::own_kernels() = before_; }

}  // namespace rlalgo::support::far
