# Floor targets: rlalgo::host (floors 0–1, no torch on the include path) < rlalgo::rlalgo (floors 2–6) < rlalgo::config.
include(RlalgoLibTorch)
find_package(Eigen3 3.3 REQUIRED NO_MODULE)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(range-v3 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(RLALGO_PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
find_package(ICU REQUIRED COMPONENTS uc i18n data)
find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(Protobuf REQUIRED)

add_library(rlalgo_host INTERFACE)
add_library(rlalgo::host ALIAS rlalgo_host)
target_compile_features(rlalgo_host INTERFACE cxx_std_20)
target_include_directories(rlalgo_host INTERFACE $<BUILD_INTERFACE:${CMAKE_CURRENT_LIST_DIR}/../include>)
target_link_libraries(rlalgo_host INTERFACE Eigen3::Eigen nlohmann_json::nlohmann_json range-v3::range-v3
  PkgConfig::RLALGO_PCRE2 ICU::uc ICU::i18n ICU::data Threads::Threads)

add_library(rlalgo_rlalgo INTERFACE)
add_library(rlalgo::rlalgo ALIAS rlalgo_rlalgo)
target_link_libraries(rlalgo_rlalgo INTERFACE rlalgo_host rlalgo_libtorch)

add_library(rlalgo_config INTERFACE)
add_library(rlalgo::config ALIAS rlalgo_config)
target_link_libraries(rlalgo_config INTERFACE rlalgo_rlalgo yaml-cpp)
