/* Backups: see backup.h. */
#include "cache/pool/backup.h"
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "base/populate.h"

#include <stdlib.h>

/* Blocks start at multiples of this in the host memory too, as on the device. */
enum { ENTRY_ALIGNMENT = 512 };

void vmm__backup_clear(struct backup *backup)
{
    vmm__host_free(backup->entries, backup->capacity * sizeof *backup->entries);
    backup->entries = NULL;
    backup->count = 0;
    backup->capacity = 0;
}

vmm_status vmm__backup_add(struct backup *backup, uint64_t address, uint64_t bytes)
{
    if (!vmm__host_array_grow((void **)&backup->entries, &backup->capacity, backup->count,
                              sizeof *backup->entries))
        return vmm__error(VMM_ERR_HOST_OOM, "sleep: no host memory for the list of blocks");
    backup->entries[backup->count++] = (struct backup_entry){ .address = address, .bytes = bytes };
    return VMM_OK;
}

static int by_address(const void *a, const void *b)
{
    const struct backup_entry *left = a;
    const struct backup_entry *right = b;
    return left->address < right->address ? -1 : left->address > right->address;
}

static uint64_t offsets_assign(struct backup *backup)
{
    uint64_t offset = 0;
    if (backup->count > 1)
        qsort(backup->entries, backup->count, sizeof *backup->entries, by_address);
    for (uint64_t i = 0; i < backup->count; i++) {
        backup->entries[i].offset = offset;
        offset += vmm__align_up(backup->entries[i].bytes, ENTRY_ALIGNMENT);
    }
    return offset;
}

/* Memory that the driver refuses to unpin stays, for a later call: nothing else may get it. On a lost device nothing is
 * pinned. */
static vmm_status memory_drop(struct backup *backup, struct driver *driver)
{
    struct error_line line;
    vmm__error_save(&line);
    while (backup->pinned_bytes > 0) {
        uint64_t start = (backup->pinned_bytes - 1) / SEGMENT_BYTES * SEGMENT_BYTES;
        vmm_status status =
            vmm__driver_unpin(driver, backup->memory + start, backup->pinned_bytes - start);
        if (status != VMM_OK && status != VMM_ERR_LOST)
            return status;
        backup->pinned_bytes = start;
    }
    vmm__host_table_free(backup->memory, backup->bytes);
    backup->memory = NULL;
    backup->bytes = 0;
    vmm__error_restore(&line);
    return VMM_OK;
}

/* Other threads populate the memory ahead of the driver. */
static vmm_status memory_pin(struct backup *backup, struct driver *driver)
{
    vmm_status status = VMM_OK;
    struct populate populate;
    vmm__populate_begin(&populate, backup->memory, backup->bytes);
    while (backup->pinned_bytes < backup->bytes && status == VMM_OK) {
        uint64_t start = backup->pinned_bytes;
        uint64_t bytes = vmm__min(SEGMENT_BYTES, backup->bytes - start);
        vmm__populate_wait(&populate, start + bytes);
        status = vmm__driver_pin(driver, backup->memory + start, bytes);
        backup->pinned_bytes += status == VMM_OK ? bytes : 0;
    }
    vmm__populate_end(&populate);
    return status;
}

vmm_status vmm__backup_lay_out(struct backup *backup, struct driver *driver)
{
    uint64_t bytes = vmm__align_up(offsets_assign(backup), driver->granule_bytes);
    if (bytes <= backup->pinned_bytes)
        return VMM_OK;
    vmm_status status = memory_drop(backup, driver);
    if (status != VMM_OK)
        return status;
    backup->memory = vmm__host_huge_alloc(bytes);
    if (backup->memory == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "sleep: no host memory for a backup of %llu bytes",
                          (unsigned long long)bytes);
    backup->bytes = bytes;
    status = memory_pin(backup, driver);
    if (status == VMM_OK)
        return VMM_OK;
    VMM_QUIET();
    (void)memory_drop(backup, driver);
    return status;
}

const struct backup_entry *vmm__backup_find(const struct backup *backup, uint64_t address)
{
    uint64_t low = 0;
    uint64_t high = backup->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (backup->entries[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    const struct backup_entry *entry = low == 0 ? NULL : &backup->entries[low - 1];
    return entry != NULL && address - entry->address < entry->bytes ? entry : NULL;
}

vmm_status vmm__backup_drop(struct backup *backup, struct driver *driver)
{
    vmm__backup_clear(backup);
    return memory_drop(backup, driver);
}
