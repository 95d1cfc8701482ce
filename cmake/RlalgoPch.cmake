# Two precompiled headers for everything of ours that includes torch. rlalgo_speed(<target> fast | checked) gives a target
# one of them and the optimisation it was made with:
#   fast     as CMAKE_BUILD_TYPE says: rlalgo::compiled, the CLI, the programs of the quickstart, benchmarks
#   checked  RLALGO_CHECKED_OPTIMIZATION in a Release build: tests and lessons, whose compiling costs far more than their
#            running; what they spend time in is in rlalgo::compiled, which is optimised. At -O0 a file takes about 0.75 of
#            the processor time it takes at -O1, which is a little over half of that at -O3.
set(RLALGO_CHECKED_OPTIMIZATION "-O0" CACHE STRING "Optimisation of tests and lessons in a Release build; empty = as the build type says")
if(NOT RLALGO_HOST_ONLY)
  foreach(_speed IN ITEMS fast checked)
    add_library(rlalgo_pch_${_speed} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/pch/pch.cpp)
    target_link_libraries(rlalgo_pch_${_speed} PRIVATE rlalgo_config)
    target_include_directories(rlalgo_pch_${_speed} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/pch)
    target_precompile_headers(rlalgo_pch_${_speed} PRIVATE <pch.hpp>)
  endforeach()
  target_compile_options(rlalgo_pch_checked PRIVATE $<$<CONFIG:Release>:${RLALGO_CHECKED_OPTIMIZATION}>)
  if(RLALGO_BUILD_TESTS)
    find_package(Catch2 REQUIRED)
    target_link_libraries(rlalgo_pch_checked PRIVATE Catch2::Catch2)
    target_include_directories(rlalgo_pch_checked PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  endif()
endif()

# Host programs have no precompiled header: NO_TORCH.
function(rlalgo_speed target speed)
  if(speed STREQUAL "checked")
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${RLALGO_CHECKED_OPTIMIZATION}>)
  endif()
  if(NOT "NO_TORCH" IN_LIST ARGN)
    target_precompile_headers(${target} REUSE_FROM rlalgo_pch_${speed})
  endif()
endfunction()

# What joins parts and computes nothing itself (configuration to trainer, verbs of the CLI): a fifth less to compile at -O2.
function(rlalgo_glue target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
endfunction()

# An installed rlalgo::compiled is position-independent, which the precompiled header is not.
if(NOT RLALGO_HOST_ONLY)
  rlalgo_glue(rlalgo_compiled_config)
  if(NOT RLALGO_INSTALL_COMPILED)
    rlalgo_speed(rlalgo_compiled fast)
    rlalgo_speed(rlalgo_compiled_config fast)
  endif()
endif()
