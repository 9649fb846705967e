# Finds the directory of cuda.h. The cuda driver needs nothing else to be built: it opens libcuda.so.1 at
# run time. Sets vmm_cuda_include_dir, which is empty if the driver is left out, and vmm_nvtx_include_dir, the
# directory of NVTX's memory extension. With that extension the library reports blocks to tools (src/debug/nvtx.h).

set(vmm_cuda_include_dir "")
if(NOT VMM_WITH_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "VMM_WITH_CUDA is '${VMM_WITH_CUDA}'; it must be AUTO, ON or OFF")
endif()

if(NOT VMM_WITH_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  # A machine may have the headers without the rest of the toolkit.
  find_path(VMM_CUDA_H_DIR cuda.h
            HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDA_PATH ENV CUDA_HOME
            PATHS /usr/local/cuda /opt/cuda
            PATH_SUFFIXES include)
  mark_as_advanced(VMM_CUDA_H_DIR)
  if(VMM_CUDA_H_DIR)
    set(vmm_cuda_include_dir ${VMM_CUDA_H_DIR})
  endif()
endif()

if(vmm_cuda_include_dir)
  message(STATUS "cuda driver: built with ${vmm_cuda_include_dir}/cuda.h")
elseif(VMM_WITH_CUDA STREQUAL "ON")
  message(FATAL_ERROR "VMM_WITH_CUDA is ON, but cuda.h was not found. Install the CUDA toolkit's "
                      "headers or set CUDAToolkit_ROOT.")
elseif(VMM_WITH_CUDA STREQUAL "OFF")
  message(STATUS "cuda driver: LEFT OUT, because VMM_WITH_CUDA is OFF")
else()
  message(STATUS "cuda driver: LEFT OUT, because cuda.h was not found (CUDA toolkit); the library "
                 "will offer the host and sim drivers only")
endif()

find_path(VMM_NVTX_MEM_DIR nvtx3/nvToolsExtMem.h HINTS ${vmm_cuda_include_dir} PATHS /usr/local/cuda /opt/cuda
          PATH_SUFFIXES include)
mark_as_advanced(VMM_NVTX_MEM_DIR)
set(vmm_nvtx_include_dir "")
if(VMM_NVTX_MEM_DIR)
  set(vmm_nvtx_include_dir ${VMM_NVTX_MEM_DIR})
  message(STATUS "marks: built with ${vmm_nvtx_include_dir}/nvtx3/nvToolsExtMem.h")
else()
  message(STATUS "marks: LEFT OUT, because nvtx3/nvToolsExtMem.h was not found (CUDA toolkit, or NVTX)")
endif()
