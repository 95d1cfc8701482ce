// Where the build has put the module of fake_nccl.cpp.
namespace rlalgo::support {
extern const char* const fake_nccl;
const char* const fake_nccl = RLALGO_FAKE_NCCL;
}  // namespace rlalgo::support
