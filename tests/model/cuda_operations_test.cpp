// Kernels here run on the host (support/host_kernels.cpp): the same operations as ATen's, with them and without.
#include <rlalgo/model/cuda_operations.hpp>

#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/forests.hpp>
#include <support/plain_varlen.hpp>

using namespace rlalgo;

namespace {

const model::AtenOperations aten;
// Made when it is first asked for: the table of kernels is there when main() begins.
const model::CudaOperations& kernels() {
  static const tensor::OwnKernels host{.table = cuda::compiled(), .device = at::kCPU};
  static const model::CudaOperations operations(host);
  return operations;
}

bool agree(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const double tolerance = a.scalar_type() == at::kDouble ? 0.0 : a.scalar_type() == at::kFloat ? 2e-5 : 2e-2;
  return a.to(at::kDouble).allclose(b.to(at::kDouble), tolerance, tolerance);
}

const std::vector<at::ScalarType> dtypes = {at::kDouble, at::kFloat, at::kBFloat16};  // of float64 there are no kernels

}  // namespace

TEST_CASE("the norm and its gradients are ATen's") {
  REQUIRE(cuda::compiled() != nullptr);
  for (const auto type : dtypes)
    for (const auto& shape : {std::vector<std::int64_t>{5, 12}, {4, 3, 64}, {0, 8}, {2, 1}, {3, 1100}})
      for (const model::NormSpec norm :
           {model::NormSpec{1e-5}, {1e-5, true}, {1e-5, false, true}, {1e-5, false, true, true}}) {
        CAPTURE(c10::toString(type), shape, norm.unit_offset, norm.rounded_once, norm.centred);
        const auto x = at::randn(shape, type), w = at::randn({shape.back()}, type), grad = at::randn(shape, type);
        const auto expected = aten.rms_norm(x, w, norm), found = kernels().rms_norm(x, w, norm);
        CHECK(agree(found.value, expected.value));
        CHECK(agree(found.scale, expected.scale));
        auto grad_w = at::randn({shape.back()}, type), other_w = grad_w.clone();
        CHECK(agree(kernels().rms_norm_backward(grad, x, w, norm, expected.scale, {}, grad_w),
                    aten.rms_norm_backward(grad, x, w, norm, expected.scale, {}, other_w)));
        CHECK(agree(grad_w, other_w));
        const auto residual = at::randn(shape, type);
        auto sum = residual.clone();
        const auto out = kernels().rms_norm_backward(grad, x, w, norm, expected.scale, sum, {});
        CHECK(agree(out, aten.rms_norm_backward(grad, x, w, norm, expected.scale, residual.clone(), {})));
        CHECK(out.const_data_ptr() == sum.const_data_ptr());  // in place
      }
}

TEST_CASE("the rotation is ATen's, to the bit in float32") {
  for (const auto type : dtypes)
    for (const auto rotation : {model::Rotation::forward, model::Rotation::backward})
      for (const bool interleaved : {false, true})
        for (const std::int64_t width : {10, 13}) {  // the whole head, or its first elements
          const auto angles = at::randn({7, 5});
          model::RopeTable table{angles.cos(), angles.sin()};
          table.interleaved = interleaved;
          auto x = at::randn({7, 3, width}, type), expected = x.clone();
          kernels().rotate(x, table, rotation);
          aten.rotate(expected, table, rotation);
          CHECK(x.equal(expected));
        }
}

TEST_CASE("gated activations and their gradients are ATen's") {
  for (const auto type : dtypes)
    for (const auto act : {model::Activation::silu, model::Activation::gelu_tanh})
      for (const auto& shape : {std::vector<std::int64_t>{5, 12}, {1, 7}, {0, 8}}) {
        const auto gate = at::randn(shape, type), up = at::randn(shape, type), grad = at::randn(shape, type);
        const auto expected = at::empty_like(gate), found = at::empty_like(gate);
        aten.gated(act, gate, up, expected);
        kernels().gated(act, gate, up, found);
        CHECK(agree(found, expected));
        const auto g = gate.clone(), u = up.clone(), other_g = gate.clone(), other_u = up.clone();
        kernels().gated_backward(act, grad, g, u);
        aten.gated_backward(act, grad, other_g, other_u);
        CHECK(agree(g, other_g));
        CHECK(agree(u, other_u));
        kernels().gated(act, gate, up, gate);
        CHECK(agree(gate, expected));
      }
}

TEST_CASE("rows are added in their order: the bits of ATen on the CPU in float32") {
  for (const auto type : dtypes) {
    const auto index = at::randint(0, 5, {40}, at::kLong), grad = at::randn({40, 9}, type);
    auto found = at::randn({6, 9}, type), expected = found.clone();
    kernels().add_rows(found, index, grad);
    aten.add_rows(expected, index, grad);
    if (type == at::kBFloat16)  // one rounding instead of one a row
      CHECK(found.to(at::kFloat).allclose(expected.to(at::kFloat), 5e-2, 1e-1));
    else
      CHECK(found.equal(expected));
  }
  auto none = at::randn({6, 9});
  const auto before = none.clone();
  kernels().add_rows(none, at::empty({0}, at::kLong), at::empty({0, 9}));
  CHECK(none.equal(before));
}

TEST_CASE("attention in one call over the chains of all segments is that piece by piece, with its gradients") {
  const support::PlainVarlen varlen;
  for (const bool kernel_sums : {true, false}) {
    cuda::use(cuda::Kernel::segment_sum, kernel_sums);
    const tensor::OwnKernels host{.table = cuda::compiled(), .device = at::kCPU, .varlen = &varlen};
    const model::CudaOperations whole(host);
    for (const auto& segments : support::forests)
      for (const std::int64_t window : {0, 1, 4, 7, 100})
        for (const auto& [heads, kv] : {std::pair<std::int64_t, std::int64_t>{4, 2}, {3, 1}, {2, 2}})
          for (const double scale : {0.0, 0.7}) {
            const auto tree = support::tree_of(segments);
            CAPTURE(segments.size(), tree.tokens(), window, heads, kv, scale, kernel_sums);
            auto pieces = aten.lay_out(model::plan_attention(tree, window), at::kCPU),
                 once = whole.lay_out(model::plan_attention(tree, window), at::kCPU);
            pieces.scale = once.scale = scale;
            const auto q = at::randn({tree.tokens(), heads, 8}), k = at::randn({tree.tokens(), kv, 8}),
                       v = at::randn({tree.tokens(), kv, 8}), grad = at::randn({tree.tokens(), heads, 8});
            const auto a = aten.attention(q, k, v, pieces), b = whole.attention(q, k, v, once);
            CHECK(agree(b.value, a.value));
            CHECK(agree(b.log_sum, a.log_sum));
            const auto ga = aten.attention_backward(grad, q, k, v, a, pieces),
                       gb = whole.attention_backward(grad, q, k, v, b, once);
            for (const auto member :
                 {&model::AttentionGradient::q, &model::AttentionGradient::k, &model::AttentionGradient::v})
              CHECK((gb.*member).allclose(ga.*member, 1e-4, 1e-4));
          }
  }
  cuda::use(cuda::Kernel::segment_sum, true);
}

TEST_CASE("attention goes piece by piece where one call cannot do it") {
  struct Refuses final : tensor::VarlenAttention {
    bool takes(const at::Tensor& q) const override { return q.scalar_type() == at::kBFloat16; }
    tensor::VarlenOutput forward(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const tensor::VarlenSequences&) const override {
      throw std::runtime_error("called");
    }
    tensor::VarlenGradient backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                    const tensor::VarlenOutput&, const tensor::VarlenSequences&) const override {
      throw std::runtime_error("called");
    }
  };
  const Refuses varlen;
  const tensor::OwnKernels host{.table = cuda::compiled(), .device = at::kCPU, .varlen = &varlen};
  const model::CudaOperations operations(host);
  const auto tree = support::tree_of(support::forests[4]);
  const auto q = at::randn({tree.tokens(), 2, 8});
  auto layout = operations.lay_out(model::plan_attention(tree), at::kCPU);
  CHECK(operations.attention(q, q, q, layout).value.equal(aten.attention(q, q, q, layout).value));  // another dtype
  layout.cap = 5.0;
  const auto narrow = q.to(at::kBFloat16);
  CHECK(agree(operations.attention(narrow, narrow, narrow, layout).value,
              aten.attention(narrow, narrow, narrow, layout).value));
  layout.cap = 0.0;
  CHECK_THROWS(operations.attention(narrow, narrow, narrow, layout));
  cuda::use(cuda::Kernel::flash_attention, false);
  CHECK_NOTHROW(operations.attention(narrow, narrow, narrow, layout));
  CHECK(operations.lay_out(model::plan_attention(tree), at::kCPU).tensors.size() ==
        aten.lay_out(model::plan_attention(tree), at::kCPU).tensors.size());
  cuda::use(cuda::Kernel::flash_attention, true);
}

TEST_CASE("a kernel that is switched off leaves its operation to ATen") {
  const auto x = at::randn({5, 12}), w = at::randn({12});
  for (const bool on : {true, false}) {
    cuda::use(cuda::Kernel::rms_norm, on);
    CHECK(agree(kernels().rms_norm(x, w, {}).value, aten.rms_norm(x, w, {}).value));
  }
  CHECK(kernels().rms_norm(x, w, {}).value.equal(aten.rms_norm(x, w, {}).value));
  cuda::use(cuda::Kernel::rms_norm, true);
}

TEST_CASE("a device without memory is ATen's") {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const auto x = at::empty({5, 12}, meta), w = at::empty({12}, meta);
  CHECK(kernels().rms_norm(x, w, {}).value.is_meta());
  kernels().gated(model::Activation::silu, x, x, x);
}
