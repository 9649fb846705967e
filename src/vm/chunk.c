/* Chunks and their places: create, map, unmap and release. See vm.h. */
#include "base/arith.h"
#include "base/error.h"
#include "base/hostmem.h"
#include "vm/vm.h"

/* The most chunks of a cache: 8 TiB in granules of 2 MiB. */
enum { RECORD_LIMIT = 1 << 22 };

struct chunk *vmm__chunk_take(struct vm *vm)
{
    uint32_t id = vm->unused;
    if (id != 0)
        vm->unused = vm->records[id].next;
    else if (vm->record_high < vm->record_limit)
        id = vm->record_high++;
    return id == 0 ? NULL : &vm->records[id];
}

void vmm__chunk_drop(struct vm *vm, struct chunk *chunk)
{
    if (chunk->account != NULL)
        vmm__account_leave(vm, chunk);
    *chunk = (struct chunk){ .state = CHUNK_UNUSED, .next = vm->unused };
    vm->unused = vmm__chunk_id(vm, chunk);
}

/* ---- The page map ---------------------------------------------------------------------------- */

/* Imported memory is not recorded: another cache has it. */
void vmm__mapping_record(const struct vm *vm, const struct chunk *chunk, uint64_t granule,
                         enum trace_kind kind)
{
    bool is_imported = chunk->account != NULL && chunk->account->is_imported;
    if (vm->recorder == NULL || is_imported)
        return;
    uint64_t inner = vmm__arena_address(&vm->arena, granule);
    struct trace_event event = { .kind = kind,
                                 .address = chunk->segment == NULL ? inner : chunk->segment->outer,
                                 .bytes = vmm__chunk_bytes(vm, chunk),
                                 .stream = vmm__chunk_id(vm, chunk) };
    vmm__recorder_push(vm->recorder, event);
}

static void mappings_record(const struct vm *vm, const struct chunk *chunk)
{
    if (!chunk->is_mapped || chunk->is_alias)
        return;
    vmm__mapping_record(vm, chunk, chunk->first, TRACE_HOME);
    for (uint64_t at = chunk->place; at != NO_GRANULE; at = vm->next_places[at])
        vmm__mapping_record(vm, chunk, at, TRACE_PLACE);
}

void vmm__vm_record(struct vm *vm, struct recorder *recorder)
{
    vm->recorder = recorder;
    for (uint32_t id = 1; id < vm->record_high && recorder != NULL; id++)
        mappings_record(vm, &vm->records[id]);
}

static void pages_set(struct vm *vm, const struct chunk *chunk, uint64_t granule, uint32_t id,
                      enum trace_kind kind)
{
    for (uint64_t i = 0; i < chunk->granules; i++)
        vm->pages[granule + i] = id;
    vmm__mapping_record(vm, chunk, granule, id == 0 || chunk->is_alias ? TRACE_GONE : kind);
}

void vmm__chunk_page_at(struct vm *vm, const struct chunk *chunk, uint64_t granule, uint32_t id)
{
    pages_set(vm, chunk, granule, id, TRACE_PLACE);
}

void vmm__chunk_page_home(struct vm *vm, const struct chunk *chunk, uint32_t id)
{
    pages_set(vm, chunk, chunk->first, id, TRACE_HOME);
}

uint64_t vmm__chunk_mapping(const struct vm *vm, const struct chunk *chunk, uint64_t granule)
{
    if (vmm__chunk_is_home(chunk, granule))
        return chunk->first;
    uint64_t place = chunk->place;
    while (granule - place >= chunk->granules)
        place = vm->next_places[place];
    return place;
}

uint64_t vmm__mapping_at(const struct vm *vm, const struct chunk *chunk, uint32_t number)
{
    uint64_t granule = chunk->place;
    for (uint32_t i = 0; i < number && granule != NO_GRANULE; i++)
        granule = vm->next_places[granule];
    return granule == NO_GRANULE ? chunk->first : granule;
}

void vmm__place_link(struct vm *vm, struct chunk *chunk, uint64_t granule)
{
    vm->next_places[granule] = chunk->place;
    chunk->place = granule;
    chunk->places++;
    vm->counts.places++;
    vm->counts.view_bytes += vmm__chunk_bytes(vm, chunk);
    vm->counts.places_max = (uint32_t)vmm__max(vm->counts.places_max, chunk->places);
}

/* Imports the memory of a chunk, or creates it: then `exported` is NULL. */
static vmm_status handle_open(const struct vm *vm, struct chunk *chunk,
                              const struct chunk_export *exported)
{
    uint64_t bytes = vmm__chunk_bytes(vm, chunk);
    if (exported == NULL)
        return vmm__driver_create(vm->driver, bytes, chunk->reach, &chunk->handle);
    if (exported->descriptor == NO_DESCRIPTOR)
        return vmm__driver_fabric_import(vm->driver, &exported->fabric, bytes, &chunk->handle);
    return vmm__driver_share_import(vm->driver, exported->descriptor, bytes, &chunk->handle);
}

static vmm_status handle_close(const struct vm *vm, const struct chunk *chunk)
{
    uint64_t bytes = vmm__chunk_bytes(vm, chunk);
    return chunk->account->is_imported ? vmm__driver_share_release(vm->driver, chunk->handle, bytes)
                                       : vmm__driver_release(vm->driver, chunk->handle, bytes);
}

static vmm_share_reach reach_choose(const struct vm *vm, const struct account *account)
{
    bool is_of_machine = vm->is_exportable && account->reach == VMM_SHARE_NONE;
    return is_of_machine && !account->is_imported ? VMM_SHARE_MACHINE : account->reach;
}

/* Creates or imports one chunk, and maps it: see vmm__chunks_open(). */
static vmm_status chunk_open(struct vm *vm, struct account *account, uint64_t granule,
                             uint32_t granules, const struct chunk_export *exported)
{
    struct chunk *chunk = vmm__chunk_take(vm);
    if (chunk == NULL)
        return vmm__error(VMM_ERR_HOST_OOM, "vm: no record left for another chunk");
    *chunk = (struct chunk){ .first = granule,
                             .place = NO_GRANULE,
                             .granules = granules,
                             .state = CHUNK_HELD,
                             .reach = reach_choose(vm, account) };
    vmm__account_enter(vm, chunk, account);
    vmm_status status = handle_open(vm, chunk, exported);
    if (status != VMM_OK) {
        vmm__chunk_drop(vm, chunk);
        return status;
    }
    vmm__account_book(vm, chunk);
    status = vmm__mapping_map(vm, chunk, granule);
    if (status != VMM_OK) {
        vmm__limbo_put(vm, chunk, NULL, 0);
        return status;
    }
    chunk->is_mapped = true;
    vmm__chunk_page_home(vm, chunk, vmm__chunk_id(vm, chunk));
    return VMM_OK;
}

vmm_status vmm__chunks_open(struct vm *vm, struct account *account, uint64_t granule,
                            uint64_t count, uint32_t chunk_granules, uint64_t *done)
{
    vmm_status status = vmm__account_check(vm, account, count << vm->arena.granule_shift);
    *done = 0;
    while (*done < count && status == VMM_OK) {
        uint32_t granules = (uint32_t)vmm__min(chunk_granules, count - *done);
        status = chunk_open(vm, account, granule + *done, granules, NULL);
        *done += status == VMM_OK ? granules : 0;
    }
    return status;
}

/* Unmaps the newest place of a chunk, or any mapping of one that does not sleep. */
static vmm_status mapping_close(struct vm *vm, struct chunk *chunk, uint64_t granule)
{
    bool is_last = chunk->unmapped == 1;
    if (chunk->unmapped > 0 && !(is_last && chunk->lacks_access)) {
        chunk->unmapped--;
        return VMM_OK;
    }
    vmm_status status = vmm__mapping_unmap(vm, chunk, granule);
    if (status == VMM_OK && is_last) {
        chunk->unmapped = 0;
        chunk->lacks_access = false;
    }
    return status;
}

/* Closes a chunk whose memory is that of a source. The cache has mapped nothing there. */
static void segment_chunk_close(struct vm *vm, struct chunk *chunk)
{
    vmm__chunk_page_home(vm, chunk, 0);
    vmm__arena_give(&vm->arena, chunk->first, chunk->granules);
    vmm__sourced_close(vm, chunk->segment);
    vmm__account_unbook(vm, chunk);
    vmm__chunk_drop(vm, chunk);
}

vmm_status vmm__chunk_close(struct vm *vm, struct chunk *chunk)
{
    if (chunk->segment != NULL) {
        segment_chunk_close(vm, chunk);
        return VMM_OK;
    }
    uint64_t bytes = vmm__chunk_bytes(vm, chunk);
    while (chunk->is_mapped && chunk->places > 0) {
        vmm_status status = vmm__place_unmap(vm, chunk, chunk->place);
        if (status != VMM_OK)
            return status;
    }
    if (chunk->is_mapped) {
        vmm_status status = mapping_close(vm, chunk, chunk->first);
        if (status != VMM_OK)
            return status;
        chunk->is_mapped = false;
        vmm__chunk_page_home(vm, chunk, 0);
        if (!chunk->keeps_addresses)
            vmm__arena_give(&vm->arena, chunk->first, chunk->granules);
    }
    if (chunk->is_alias) {
        vmm__chunk_drop(vm, chunk);
        return VMM_OK;
    }
    if (chunk->is_asleep) {
        vm->counts.asleep_bytes -= bytes;
        chunk->account->counts.asleep_bytes -= bytes;
        vmm__chunk_drop(vm, chunk);
        return VMM_OK;
    }
    vmm_status status = handle_close(vm, chunk);
    if (status != VMM_OK)
        return status;
    vmm__account_unbook(vm, chunk);
    vmm__chunk_drop(vm, chunk);
    return VMM_OK;
}

void vmm__vm_discard(struct vm *vm, uint64_t granule, uint64_t count, struct clock *clock,
                     uint64_t epoch)
{
    for (uint64_t at = 0; at < count;) {
        struct chunk *chunk = vmm__vm_chunk(vm, granule + at);
        at += chunk->granules;
        vmm__limbo_put(vm, chunk, clock, epoch);
    }
}

/* Undoes a failed mapping that had mapped the first `done` of `count` granules. */
static void map_undo(struct vm *vm, uint64_t granule, uint64_t done, uint64_t count)
{
    vmm__vm_discard(vm, granule, done, NULL, 0);
    if (done < count)
        vmm__arena_give(&vm->arena, granule + done, count - done);
}

vmm_status vmm__vm_map(struct vm *vm, struct account *account, uint64_t granule, uint64_t count,
                       uint32_t chunk_granules)
{
    uint64_t done;
    vmm_status status = vmm__chunks_open(vm, account, granule, count, chunk_granules, &done);
    if (status != VMM_OK)
        map_undo(vm, granule, done, count);
    return status;
}

vmm_status vmm__vm_import(struct vm *vm, struct account *account, uint64_t granule,
                          const struct shared_chunk *chunks, uint32_t count)
{
    vmm_status status = VMM_OK;
    uint64_t done = 0;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t granules = (uint32_t)(chunks[i].bytes >> vm->arena.granule_shift);
        sum += granules;
        if (status == VMM_OK)
            status = chunk_open(vm, account, granule + done, granules, chunks[i].exported);
        done += status == VMM_OK ? granules : 0;
    }
    if (status != VMM_OK)
        map_undo(vm, granule, done, sum);
    return status;
}

vmm_status vmm__place_map(struct vm *vm, struct chunk *chunk, uint64_t granule)
{
    vmm_status status = vmm__mapping_map(vm, chunk, granule);
    if (status != VMM_OK)
        return status;
    vmm__place_link(vm, chunk, granule);
    vmm__chunk_page_at(vm, chunk, granule, vmm__chunk_id(vm, chunk));
    return VMM_OK;
}

vmm_status vmm__place_unmap(struct vm *vm, struct chunk *chunk, uint64_t granule)
{
    vmm_status status = mapping_close(vm, chunk, granule);
    if (status != VMM_OK)
        return status;
    uint64_t *link = &chunk->place;
    while (*link != granule)
        link = &vm->next_places[*link];
    *link = vm->next_places[granule];
    chunk->places--;
    vm->counts.places--;
    vm->counts.view_bytes -= vmm__chunk_bytes(vm, chunk);
    vmm__chunk_page_at(vm, chunk, granule, 0);
    vmm__arena_give(&vm->arena, granule, chunk->granules);
    return VMM_OK;
}

vmm_status vmm__vm_access(struct vm *vm, uint64_t granule, uint64_t count)
{
    return vmm__driver_access(vm->driver, vmm__arena_address(&vm->arena, granule),
                              count << vm->arena.granule_shift);
}

vmm_status vmm__vm_init(struct vm *vm, struct driver *driver, struct memory_limits limits)
{
    *vm = (struct vm){ .driver = driver,
                       .limit_bytes = limits.bytes,
                       .is_exportable = limits.is_exportable,
                       .record_high = 1 };
    vmm__sourced_init(&vm->segments);
    vmm_status status =
        vmm__arena_init(&vm->arena, driver, limits.first_arena_bytes, limits.arena_bytes);
    if (status != VMM_OK) {
        vmm__sourced_fini(&vm->segments);
        return status;
    }
    vm->record_limit = vmm__min(RECORD_LIMIT, vm->arena.granules + 1);
    vm->pages = vmm__host_table_alloc(vm->arena.granules * sizeof *vm->pages);
    vm->records = vmm__host_table_alloc(vm->record_limit * sizeof *vm->records);
    vm->next_places = vmm__host_table_alloc(vm->arena.granules * sizeof *vm->next_places);
    if (vm->pages == NULL || vm->records == NULL || vm->next_places == NULL) {
        (void)vmm__vm_fini(vm);
        return vmm__error(VMM_ERR_HOST_OOM, "vm: no host memory for the page map");
    }
    return VMM_OK;
}

static vmm_status chunks_close(struct vm *vm)
{
    vmm_status first = VMM_OK;
    for (uint32_t id = 1; id < vm->record_high; id++) {
        struct chunk *chunk = &vm->records[id];
        vmm_status status = chunk->state == CHUNK_UNUSED ? VMM_OK : vmm__chunk_close(vm, chunk);
        first = first == VMM_OK ? status : first;
    }
    return first;
}

vmm_status vmm__vm_fini(struct vm *vm)
{
    if (vm->remap_pending > 0)
        vmm__vm_remap_pending(vm);
    vmm_status first = chunks_close(vm);
    if (first != VMM_OK)
        first = chunks_close(vm); /* try once more what the driver refused */
    vmm__host_table_free(vm->records, vm->record_limit * sizeof *vm->records);
    vmm__host_table_free(vm->next_places, vm->arena.granules * sizeof *vm->next_places);
    vmm__host_table_free(vm->pages, vm->arena.granules * sizeof *vm->pages);
    vmm__sourced_fini(&vm->segments);
    vmm_status status = vmm__arena_fini(&vm->arena);
    return first == VMM_OK ? status : first;
}
