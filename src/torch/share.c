/* Memory that processes share: see share.h. */
#include "torch/share.h"
#include "base/error.h"
#include "torch/hooks.h"
#include "torch/share_server.h"
#include "torch/shared_blocks.h"

#include <string.h>
#include <unistd.h>

/* ---- Share ---------------------------------------------------------------------------------- */

vmm_status vmm__torch_share(const void *address, void *handle, size_t *handle_bytes,
                            uint64_t *offset_bytes)
{
    struct share_handle made = { .magic = SHARE_MAGIC, .version = SHARE_VERSION };
    vmm_item item = VMM_ITEM_INIT;
    int ordinal;
    const char *name;
    if (vmm__torch_is_forked())
        return vmm__torch_forked_error();
    if (*handle_bytes < sizeof made)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "share: the handle needs %zu bytes",
                          sizeof made);
    vmm_status status = vmm__torch_block_find(address, &item, &ordinal);
    if (status == VMM_OK && item.is_imported)
        status =
            vmm__error(VMM_ERR_UNSUPPORTED, "share: the memory belongs to another process, which "
                                            "alone can share it: send a clone of the tensor");
    if (status == VMM_OK)
        status = vmm__share_server_start(&name);
    if (status == VMM_OK)
        status = vmm__shared_block_token(vmm__torch_find(ordinal), item.address, &made.token);
    if (status != VMM_OK)
        return status;
    memcpy(made.socket, name, sizeof made.socket);
    memcpy(handle, &made, sizeof made);
    *handle_bytes = sizeof made;
    *offset_bytes = (uint64_t)(uintptr_t)address - item.address;
    return VMM_OK;
}

/* ---- Open ----------------------------------------------------------------------------------- */

static vmm_status handle_refuse(const char *why)
{
    return vmm__error(VMM_ERR_INVALID_ARGUMENT, "share: the handle %s", why);
}

/* Copies and checks a handle, which may be any bytes. */
static vmm_status handle_read(const void *bytes, size_t count, struct share_handle *out)
{
    uint64_t magic = 0;
    if (count >= sizeof magic)
        memcpy(&magic, bytes, sizeof magic);
    if (magic != SHARE_MAGIC)
        return handle_refuse("is not one of vmmcache: both processes must install it");
    if (count >= sizeof magic + sizeof out->version)
        memcpy(&out->version, (const char *)bytes + sizeof magic, sizeof out->version);
    if (count < sizeof magic + sizeof out->version || out->version != SHARE_VERSION)
        return handle_refuse("is of another version of vmmcache");
    if (count != sizeof *out)
        return handle_refuse("has a wrong size");
    memcpy(out, bytes, sizeof *out);
    char name[SOCKET_NAME_BYTES] = "";
    if (memchr(out->socket, '\0', sizeof name) != NULL)
        memcpy(name, out->socket, strlen(out->socket));
    bool is_valid = name[0] != '\0' && memcmp(name, out->socket, sizeof name) == 0;
    return is_valid && out->zero == 0 ? VMM_OK : handle_refuse("names no valid socket");
}

static vmm_status answer_check(const struct share_answer *answer)
{
    if (answer->magic != SHARE_MAGIC || answer->zero != 0 || answer->result > SHARE_REFUSED)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT, "share: what the other process answered is not "
                                                    "an answer of vmmcache");
    if (answer->result == SHARE_UNKNOWN)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "share: the other process has freed this memory, or never shared it");
    if (answer->result == SHARE_REFUSED)
        return vmm__error(VMM_ERR_INVALID_ARGUMENT,
                          "share: the other process has another version of vmmcache");
    return VMM_OK;
}

/* Asks the exporter for the share of a handle. */
static vmm_status share_request(const struct share_handle *handle, vmm_share **out)
{
    struct share_request request = { .magic = SHARE_MAGIC,
                                     .version = handle->version,
                                     .token = handle->token };
    struct share_answer answer;
    int socket;
    vmm_status status = vmm__share_connect(handle->socket, &socket);
    if (status != VMM_OK)
        return status;
    status = vmm__share_bytes_send(socket, &request, sizeof request);
    if (status == VMM_OK)
        status = vmm__share_bytes_receive(socket, &answer, sizeof answer);
    if (status == VMM_OK)
        status = answer_check(&answer);
    if (status == VMM_OK)
        status = vmm_share_receive(socket, out);
    (void)close(socket);
    return status;
}

vmm_status vmm__torch_share_open(const void *handle, size_t handle_bytes, int ordinal, void **out)
{
    struct share_handle read;
    struct torch_device *device;
    vmm_share *share;
    vmm_status status = vmm__torch_is_forked() ? vmm__torch_forked_error()
                                               : handle_read(handle, handle_bytes, &read);
    if (status == VMM_OK)
        status = vmm__torch_open(ordinal, &device);
    if (status == VMM_OK)
        status = share_request(&read, &share);
    if (status != VMM_OK)
        return status;
    status = vmm_share_import(vmm__torch_cache_of(device), share, NULL, out);
    VMM_QUIET();
    (void)vmm_share_close(share, 0);
    return status;
}

/* ---- Close ---------------------------------------------------------------------------------- */

/* Waits for all work of the device, also of streams that the cache has never seen, unless a capture is under way: the
 * end of a pool of graphs does so. */
static vmm_status device_wait(vmm_cache *cache)
{
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    vmm_pool *pool;
    options.kind = VMM_POOL_GRAPH;
    vmm_status status = vmm_pool_create(cache, &options, &pool);
    return status == VMM_OK ? vmm_pool_destroy(pool, 0) : status;
}

vmm_status vmm__torch_share_close(void *ptr)
{
    vmm_item item = VMM_ITEM_INIT;
    int ordinal;
    if (vmm__torch_is_forked())
        return VMM_OK;
    vmm_status status = vmm__torch_block_find(ptr, &item, &ordinal);
    if (status == VMM_OK && (!item.is_imported || item.address != (uint64_t)(uintptr_t)ptr))
        status = vmm__error(VMM_ERR_UNKNOWN_POINTER,
                            "share_close: %p is not memory of another process", ptr);
    if (status != VMM_OK)
        return status;
    vmm_cache *cache = vmm__torch_cache_of(vmm__torch_find(ordinal));
    vmm_status waited = device_wait(cache);
    status = vmm_free(cache, ptr);
    return status == VMM_OK ? waited : status;
}
