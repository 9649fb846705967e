/* Blocks that other processes may open: see shared_blocks.h. */
#include "torch/shared_blocks.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "base/map.h"
#include "base/mutex.h"

#include <string.h>

struct shared_block {
    struct map_node by_address; /* its key is the block's address */
    struct map_node by_token;   /* its key is the first half of the token */
    struct share_token token;
    vmm_share *share;
    bool is_sent;  /* the server, one thread, uses the share */
    bool is_freed; /* meanwhile: the server closes the share */
};

static struct mutex lock = VMM_MUTEX_INIT;
static struct map by_address;
static struct map by_token;

/* ---- Records -------------------------------------------------------------------------------- */

static uint64_t token_key(const struct share_token *token)
{
    uint64_t key;
    memcpy(&key, token->bytes, sizeof key);
    return key;
}

static struct shared_block *address_find_locked(uint64_t address)
{
    VMM_ASSERT_HELD(&lock);
    struct map_node *node = vmm__map_find(&by_address, address);
    return node == NULL ? NULL : VMM_MAP_RECORD(node, struct shared_block, by_address);
}

static struct shared_block *token_find_locked(const struct share_token *token)
{
    VMM_ASSERT_HELD(&lock);
    struct map_node *node = vmm__map_find(&by_token, token_key(token));
    while (node != NULL) {
        struct shared_block *block = VMM_MAP_RECORD(node, struct shared_block, by_token);
        if (memcmp(&block->token, token, sizeof *token) == 0)
            return block;
        node = vmm__map_find_next(node);
    }
    return NULL;
}

/* Closes the export: the block may be used again once it is freed. Importers keep the memory until they close it. */
static void block_close(struct shared_block *block)
{
    VMM_QUIET();
    (void)vmm_share_close(block->share, 1);
    vmm__host_free(block, sizeof *block);
}

struct shared_block *vmm__shared_block_send_begin(const struct share_token *token,
                                                  vmm_share **share)
{
    VMM_HOLD(&lock);
    struct shared_block *block = token_find_locked(token);
    if (block != NULL) {
        block->is_sent = true;
        *share = block->share;
    }
    return block;
}

void vmm__shared_block_send_end(struct shared_block *block)
{
    vmm__mutex_lock(&lock);
    bool is_freed = block->is_freed;
    block->is_sent = false;
    vmm__mutex_unlock(&lock);
    if (is_freed)
        block_close(block);
}

void vmm__shared_block_drop(const void *ptr)
{
    vmm__mutex_lock(&lock);
    struct shared_block *block = address_find_locked((uint64_t)(uintptr_t)ptr);
    bool is_sent = block != NULL && block->is_sent;
    if (block != NULL) {
        vmm__map_remove(&by_address, &block->by_address);
        vmm__map_remove(&by_token, &block->by_token);
        block->is_freed = true;
    }
    vmm__mutex_unlock(&lock);
    if (block != NULL && !is_sent)
        block_close(block);
}

/* ---- Tokens --------------------------------------------------------------------------------- */

static vmm_status export_failed(const struct torch_device *device, vmm_status status)
{
    if (status != VMM_ERR_INVALID_ARGUMENT) /* else the cache is not shareable */
        return status;
    const char *reason = device->sharing_failure.text;
    return vmm__error(VMM_ERR_UNSUPPORTED, "CUDA tensors cannot be shared with other processes: %s",
                      *reason != '\0' ? reason : "the settings turn it off (ipc, VMM_SHAREABLE)");
}

/* Exports a block, and makes a record with a new token. */
static vmm_status block_export(const struct torch_device *device, uint64_t address,
                               struct shared_block **out)
{
    struct shared_block *block = vmm__host_alloc(1, sizeof *block);
    if (block == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "share: no host memory for a record");
    vmm_status status = vmm__share_random(&block->token, sizeof block->token);
    if (status == VMM_OK)
        status = vmm_share_export(vmm__torch_cache_of(device), (void *)(uintptr_t)address,
                                  &block->share);
    if (status != VMM_OK) {
        vmm__host_free(block, sizeof *block);
        return export_failed(device, status);
    }
    block->by_address.key = address;
    block->by_token.key = token_key(&block->token);
    *out = block;
    return VMM_OK;
}

/* Reads the token of a block that was shared before. */
static bool token_get(uint64_t address, struct share_token *token)
{
    VMM_HOLD(&lock);
    const struct shared_block *block = address_find_locked(address);
    if (block != NULL)
        *token = block->token;
    return block != NULL;
}

/* Exports a block, unless another thread does the same: then it has that one's token. */
static vmm_status token_make(const struct torch_device *device, uint64_t address,
                             struct share_token *token)
{
    struct shared_block *made = NULL;
    vmm_status status = block_export(device, address, &made);
    if (status != VMM_OK)
        return status;
    vmm__mutex_lock(&lock);
    struct shared_block *block = address_find_locked(address);
    bool is_new = block == NULL;
    if (is_new) {
        vmm__map_add(&by_address, &made->by_address);
        vmm__map_add(&by_token, &made->by_token);
    }
    *token = is_new ? made->token : block->token;
    vmm__mutex_unlock(&lock);
    atomic_fetch_or_explicit(&vmm__torch_mode, TORCH_SHARES, memory_order_relaxed);
    if (!is_new)
        block_close(made);
    return VMM_OK;
}

vmm_status vmm__shared_block_token(const struct torch_device *device, uint64_t address,
                                   struct share_token *token)
{
    return token_get(address, token) ? VMM_OK : token_make(device, address, token);
}
