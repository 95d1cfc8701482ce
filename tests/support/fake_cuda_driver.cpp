// In the place of libcuda.so.1: a driver whose version and GPUs the environment says (FAKE_CUDA_VERSION, FAKE_CUDA_INIT,
// FAKE_CUDA_GPUS: the compute capabilities of the GPUs, 80 or 90, with a space between).
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

int number(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::vector<int> gpus() {
  const char* const text = std::getenv("FAKE_CUDA_GPUS");
  std::istringstream in(text == nullptr ? "" : text);
  std::vector<int> out;
  for (int one = 0; in >> one;) out.push_back(one);
  return out;
}

}  // namespace

extern "C" {

int cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION", 13000);
  return 0;
}
int cuInit(unsigned) { return number("FAKE_CUDA_INIT", 0); }
int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(gpus().size());
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetName(char* name, int length, int device) {
  std::strncpy(name, ("Fake GPU " + std::to_string(device)).c_str(), static_cast<std::size_t>(length));
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const int capability = gpus().at(static_cast<std::size_t>(device));
  *value = attribute == 75 ? capability / 10 : capability % 10;
  return 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{80} << 30U;
  return 0;
}

}  // extern "C"
