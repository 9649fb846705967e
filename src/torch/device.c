/* The devices of a process: see device.h. */
#include "torch/device.h"
#include "base/error.h"

struct torch_device vmm__torch_devices[TORCH_DEVICES];
_Atomic unsigned vmm__torch_mode;

vmm_status vmm__torch_forked_error(void)
{
    return vmm__error(VMM_ERR_FORKED,
                      "a process cannot use its parent's GPU memory after fork(); start "
                      "it by spawn or forkserver");
}
