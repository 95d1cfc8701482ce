# rlalgo_train: config::train as object files, for programs of this tree. Users of the library need it not: the headers
# hold everything.
if(RLALGO_HOST_ONLY)
  return()
endif()
add_library(rlalgo_train OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/train_online.cpp ${CMAKE_CURRENT_LIST_DIR}/train_preference.cpp)
target_link_libraries(rlalgo_train PUBLIC rlalgo_config rlalgo_jinja_engine rlalgo_http_engine)
target_compile_definitions(rlalgo_train PUBLIC RLALGO_TRAIN_ELSEWHERE)
target_precompile_headers(rlalgo_train REUSE_FROM rlalgo_pch)
