# The allocators that the benches compare with, each if it is found; glibc's is always present.
# VMM_TORCH_DIR: PyTorch's folder, which holds include/ and lib/; empty: that of python3.
set(VMM_TORCH_DIR "" CACHE PATH "PyTorch's folder, with include/ and lib/; empty: that of python3")

find_package(CUDAToolkit QUIET)
find_package(rmm CONFIG QUIET)

set(bench_torch_dir "${VMM_TORCH_DIR}")
if(NOT bench_torch_dir)
  execute_process(
    COMMAND python3 -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '', end='')"
    OUTPUT_VARIABLE bench_torch_dir ERROR_QUIET)
endif()
if(NOT EXISTS "${bench_torch_dir}/include/c10/cuda/CUDACachingAllocator.h" OR NOT TARGET CUDA::cudart)
  set(bench_torch_dir "")
endif()

# RMM's interface differs between versions: use RMM only if peer_rmm.hpp compiles with it.
set(bench_rmm OFF)
if(TARGET rmm::rmm AND TARGET CUDA::cudart_static)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES rmm::rmm CUDA::cudart_static)
  set(CMAKE_REQUIRED_INCLUDES ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  set(CMAKE_REQUIRED_FLAGS -std=c++17)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY) # it is compiled, not linked
  check_cxx_source_compiles("
    #include \"peer_rmm.hpp\"
    void *use() { bench::rmm_pool pool; bench::rmm_arena arena;
                  return pool.alloc(1, arena.alloc(1, nullptr)); }
    int main() { return 0; }" VMM_RMM_COMPILES)
  set(bench_rmm ${VMM_RMM_COMPILES})
  unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
  unset(CMAKE_REQUIRED_FLAGS)
endif()

function(bench_report_peer name found)
  if(found)
    message(STATUS "bench: with ${name}")
  else()
    message(STATUS "bench: without ${name}: not found, or its version is not supported")
  endif()
endfunction()
bench_report_peer("cudaMalloc and cudaMallocAsync" "${CUDAToolkit_FOUND}")
bench_report_peer("PyTorch" "${bench_torch_dir}")
bench_report_peer("RMM" "${bench_rmm}")

# cudaMalloc and cudaMallocAsync. Linked statically, so that the program also starts without a toolkit.
function(bench_link_cudart target)
  if(TARGET CUDA::cudart_static)
    target_compile_definitions(${target} PRIVATE BENCH_WITH_CUDART)
    target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  endif()
endfunction()

function(bench_link_rmm target)
  if(bench_rmm)
    target_compile_definitions(${target} PRIVATE BENCH_WITH_RMM)
    target_link_libraries(${target} PRIVATE rmm::rmm)
  endif()
endfunction()

# PyTorch's headers may need C++20; its libraries find their dependencies at run time.
function(bench_link_torch target)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 BUILD_RPATH "${bench_torch_dir}/lib" SKIP_BUILD_RPATH OFF)
  target_include_directories(${target} SYSTEM PRIVATE
    ${bench_torch_dir}/include ${bench_torch_dir}/include/torch/csrc/api/include)
  target_link_libraries(${target} PRIVATE
    ${bench_torch_dir}/lib/libc10.so ${bench_torch_dir}/lib/libc10_cuda.so CUDA::cudart)
  target_link_options(${target} PRIVATE -Wl,--allow-shlib-undefined)
endfunction()
