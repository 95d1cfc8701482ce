#include "far_kernels.hpp"

#include <stdexcept>
#include <utility>

#include "far_device.hpp"
#include "host_kernels.hpp"

namespace rlalgo::support::far {

namespace {

template <auto Launcher>
struct Far;
template <class A, int (*cuda::Kernels::*Launcher)(const A&, cuda::Stream)>
struct Far<Launcher> {
  static int launch(const A& arguments, cuda::Stream) {
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

int begin(cuda::Stream) {
  begin_graph();
  return 0;
}
int end(cuda::Stream, cuda::Graph* out) {
  *out = new Graph(end_graph());
  return 0;
}
int replay_graph(cuda::Graph graph, cuda::Stream) {
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
                       .page_write = far<&K::page_write>,
                       .decode_attention = far<&K::decode_attention>,
                       .log_prob_tile = far<&K::log_prob_tile>,
                       .log_prob_finish = far<&K::log_prob_finish>,
                       .log_prob_gradient = far<&K::log_prob_gradient>,
                       .draw = far<&K::draw>,
                       .error_text = cuda::compiled()->error_text,
                       .graph_begin = begin,
                       .graph_end = end,
                       .graph_replay = replay_graph,
                       .graph_free = free_graph};
  return {.table = &table, .device = device().type()};
}

WithKernels::WithKernels() : before_(std::exchange(tensor::own_kernels(), kernels())) {}
WithKernels::~WithKernels() { tensor::own_kernels() = before_; }

}  // namespace rlalgo::support::far
