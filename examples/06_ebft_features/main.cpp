// Lesson 6: what energy-based fine-tuning rewards, without a trainer: features of texts, their Gram matrix, alignment and
// diversity, and the advantages of every estimator.
//
//   example_06_ebft_features MODEL_DIR   (four continuations of "1, 2, 3, " against "4, 5, 6")
#include <iomanip>
#include <iostream>
#include <string>

#include <rlalgo/feature/group_estimators.hpp>
#include <rlalgo/feature/text_matching.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/text/tokenizer.hpp>

using namespace rlalgo;

namespace {

void print(const std::string& name, const std::vector<double>& values) {
  std::cout << std::setw(28) << name;
  for (const double value : values) std::cout << std::setw(9) << value;
  std::cout << "\n";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: example_06_ebft_features MODEL_DIR\n";
    return 2;
  }
  std::shared_ptr<model::Decoder> decoder = model::load_decoder(argv[1]);
  const text::Tokenizer tokenizer = text::Tokenizer::from_directory(argv[1]);
  const std::string prompt = "1, 2, 3, ", truth = "4, 5, 6";
  const std::vector<std::string> samples = {"4, 5, 6", "4, 5, 7", "1, 1, 1", "1, 1, 1"};

  feature::TextGroup group;
  group.prompt_length = static_cast<std::int64_t>(tokenizer.encode(prompt, false).size());
  group.truth = tokenizer.encode(prompt + truth, false);
  for (const std::string& sample : samples) group.samples.push_back(tokenizer.encode(prompt + sample, false));

  // Hidden states at a quarter, the half and three quarters of the depth; the network stays as it is.
  const std::vector<double> fractions = {0.25, 0.5, 0.75};
  const feature::FeatureNetwork network(decoder, feature::tap_depths(fractions, decoder->config().layers));

  std::cout << std::fixed << std::setprecision(3) << std::setw(28) << "";
  for (const std::string& sample : samples) std::cout << std::setw(9) << sample;
  std::cout << "\n";
  for (const auto& [name, whitening] :
       {std::pair{"plain", feature::Whitening::none}, std::pair{"whitened", feature::Whitening::feature}}) {
    const bool unit_length = whitening == feature::Whitening::none;
    const feature::Gram gram = feature::text_gram(network, group, feature::Pooling::completion_mean, unit_length);
    const feature::Matching matching = feature::match(gram, {.whitening = whitening});
    print(std::string(name) + " alignment", matching.alignment);
    print("diversity", matching.diversity);
    print("advantage, pairs left out", feature::LeaveOutPairs()(matching.alignment, matching.diversity));
    print("naive leave-one-out", feature::LeaveOneOut()(matching.alignment, matching.diversity));
    print("group norm", feature::GroupNorm()(matching.alignment, matching.diversity));
    std::cout << std::setw(28) << "mismatch" << std::setw(9) << matching.mismatch << "\n";
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
