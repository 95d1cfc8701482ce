# One precompiled header for everything of ours that includes torch: tests, CLI, lessons, benchmarks.
# Use: target_precompile_headers(<target> REUSE_FROM rlalgo_pch).
if(RLALGO_HOST_ONLY)
  return()
endif()
add_library(rlalgo_pch OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/pch/pch.cpp)
target_link_libraries(rlalgo_pch PRIVATE rlalgo_config)
target_include_directories(rlalgo_pch PRIVATE ${CMAKE_CURRENT_LIST_DIR}/pch)
if(RLALGO_BUILD_TESTS)
  find_package(Catch2 REQUIRED)
  target_link_libraries(rlalgo_pch PRIVATE Catch2::Catch2)
  target_include_directories(rlalgo_pch PRIVATE ${PROJECT_SOURCE_DIR}/tests)
endif()
target_precompile_headers(rlalgo_pch PRIVATE <pch.hpp>)
