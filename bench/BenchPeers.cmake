# Allocators that ours is measured against, each where it is found; glibc's is always there.
# VMM_TORCH_DIR: PyTorch's folder, the one that holds include/ and lib/; empty: python3's.
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

function(bench_tell name found)
  if(found)
    message(STATUS "bench: with ${name}")
  else()
    message(STATUS "bench: without ${name}, which was not found")
  endif()
endfunction()
bench_tell("cudaMalloc and cudaMallocAsync" "${CUDAToolkit_FOUND}")
bench_tell("PyTorch" "${bench_torch_dir}")
bench_tell("RMM" "${rmm_FOUND}")

# cudaMalloc, cudaMallocAsync. Static: the program then also starts where there is no toolkit.
function(bench_link_cudart target)
  if(TARGET CUDA::cudart_static)
    target_compile_definitions(${target} PRIVATE BENCH_WITH_CUDART)
    target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  endif()
endfunction()

function(bench_link_rmm target)
  if(TARGET rmm::rmm AND TARGET CUDA::cudart_static)
    target_compile_definitions(${target} PRIVATE BENCH_WITH_RMM)
    target_link_libraries(${target} PRIVATE rmm::rmm)
  endif()
endfunction()

# PyTorch's headers may want C++20; its libraries find their own needs at run time.
function(bench_link_torch target)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 BUILD_RPATH "${bench_torch_dir}/lib" SKIP_BUILD_RPATH OFF)
  target_include_directories(${target} SYSTEM PRIVATE
    ${bench_torch_dir}/include ${bench_torch_dir}/include/torch/csrc/api/include)
  target_link_libraries(${target} PRIVATE
    ${bench_torch_dir}/lib/libc10.so ${bench_torch_dir}/lib/libc10_cuda.so CUDA::cudart)
  target_link_options(${target} PRIVATE -Wl,--allow-shlib-undefined)
endfunction()
