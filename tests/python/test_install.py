"""install() into a fake PyTorch that has only the interface, each case in a process of its own."""
import os
import tempfile
import unittest

from support import ProgramTest, has_cuda

BEGIN = """
import torch, vmmcache
from support import MIB
memory = torch.cuda.memory
"""


class RefusalTest(ProgramTest):
    def test_a_missing_pytorch_is_told(self):
        self.fails("import vmmcache; vmmcache.install()", "InstallError", "PyTorch cannot be imported",
                   "install_cupy()", fake=False)

    def test_a_pytorch_without_cuda_is_told(self):
        self.fails(BEGIN + "torch.version.cuda = None\nvmmcache.install()", "was built without CUDA")

    def test_a_pytorch_that_is_too_old_is_told(self):
        self.fails(BEGIN + "del memory.CUDAPluggableAllocator\nvmmcache.install()", "2.0 and later can")

    def test_cuda_in_use_is_told(self):
        self.fails(BEGIN + "torch._C.is_initialized = True\nvmmcache.install()",
                   "CUDA is initialised already")

    def test_a_missing_library_is_told_with_what_to_do(self):
        self.fails(BEGIN + "vmmcache.install()", "LibraryError", "/nowhere/libvmmcache_torch.so",
                   "--target vmmcache_torch", "VMMCACHE_LIBRARY",
                   VMMCACHE_LIBRARY="/nowhere/libvmmcache_torch.so")

    def test_a_library_that_is_none_is_told(self):
        self.fails(BEGIN + "vmmcache.install()", "LibraryError", "cannot be used",
                   VMMCACHE_LIBRARY=os.path.abspath(__file__))

    def test_a_second_time_with_other_settings_is_told(self):
        self.fails(BEGIN + "vmmcache.install(limit='1GiB')\nvmmcache.install(limit='2GiB')",
                   "installed already, with limit='1GiB'")

    def test_settings_that_come_too_late_are_told(self):
        self.fails(BEGIN + "vmmcache.mem_get_info()\nvmmcache.install(limit='2GiB')", "InstallError",
                   "a device was opened before", "call it earlier")

    def test_settings_that_make_no_sense_leave_pytorch_as_it_was(self):
        self.succeeds(BEGIN + """
try:
    vmmcache.install(reuse='never')
except ValueError:
    pass
assert torch._C.current is None and not vmmcache.is_installed()
vmmcache.install()
assert vmmcache.is_installed()
""")

    def test_there_is_no_way_back(self):
        self.fails("import vmmcache; vmmcache.uninstall()", "is not installed")
        self.fails(BEGIN + "vmmcache.install()\nvmmcache.uninstall()", "cannot change its allocator back")


class ArgumentTest(ProgramTest):
    """What install() is given comes before the environment, and what it is not given does not."""

    TELL = BEGIN + """
import os, subprocess, sys
from vmmcache._figures import Figures
GIVEN
vmmcache.mem_get_info()
print('limit', Figures(0).number('limit_bytes') * 100 // vmmcache.mem_get_info()[1])
tensor = torch.cuda.caching_allocator_alloc(8 * MIB)
torch.cuda.caching_allocator_delete(tensor)
print('kept' if vmmcache.memory_reserved() else 'given back')
print(sorted(name for name in os.environ if name.startswith('VMM_') and name not in ('VMM_DRIVER', 'VMM_TEST_C10')))
"""

    def told(self, given, **environment):
        return self.succeeds(self.TELL.replace("GIVEN", f"vmmcache.install({given})"), **environment).splitlines()

    def test_a_default_that_is_given_undoes_a_variable(self):
        self.assertEqual(self.told("no_caching=False", VMM_NO_CACHING="1"), ["limit 0", "kept", "[]"])
        self.assertEqual(self.told("limit=0", VMM_LIMIT="50%"), ["limit 0", "kept", "[]"])
        for given in ("compaction='off'", "reuse='any_use'", "decay_ms=0", "footprint=10"):
            name = "VMM_" + given.partition("=")[0].upper()
            self.assertEqual(self.told(given, **{name: "of no sense"})[-1], "[]")

    def test_what_is_not_given_is_the_environment_s(self):
        self.assertEqual(self.told("", VMM_NO_CACHING="1", VMM_LIMIT="50%"),
                         ["limit 50", "given back", "['VMM_LIMIT', 'VMM_NO_CACHING']"])

    def test_shares_stay_within_the_process(self):
        for limit in ("0.25", "'25%'"):
            self.assertEqual(self.told(f"limit={limit}"), ["limit 25", "kept", "[]"])
            self.assertEqual(self.told(f"limit={limit}", VMM_LIMIT="50%"), ["limit 25", "kept", "[]"])

    def test_settings_that_are_refused_leave_the_environment_alone(self):
        self.succeeds(BEGIN + """
import os
for given in ({'reuse': 'never'}, {'decay_thread': True}):
    try:
        vmmcache.install(limit=0, **given)
    except (ValueError, vmmcache.InstallError):
        continue
    raise AssertionError(given)
assert os.environ['VMM_LIMIT'] == '50%'
""", VMM_LIMIT="50%")

    def test_an_allocator_that_pytorch_refuses_takes_the_settings_back(self):
        """Also where the environment is valid only together with the settings."""
        for variable, given in (({"VMM_LIMIT": "4GiB"}, "limit='1GiB'"), ({"VMM_LIMIT": "junk"}, "limit='1GiB'")):
            self.succeeds(BEGIN + f"""
import os
from vmmcache._figures import Figures
def refuse(allocator):
    raise RuntimeError('no')
kept, memory.change_current_allocator = memory.change_current_allocator, refuse
try:
    vmmcache.install(native=False, {given})
except vmmcache.InstallError as error:
    assert 'refused the allocator: no' in str(error), error
else:
    raise AssertionError
assert os.environ['VMM_LIMIT'] == {variable['VMM_LIMIT']!r} and not vmmcache.is_installed()
del os.environ['VMM_LIMIT']
memory.change_current_allocator = kept
vmmcache.install(native=False)
vmmcache.mem_get_info()
assert Figures(0).number('limit_bytes') == 0
""", **variable)

    def test_a_wrong_choice_of_the_allocator_changes_nothing(self):
        self.succeeds(BEGIN + """
import os
for _ in range(2):
    try:
        vmmcache.install(native='yes', limit=0)
    except TypeError as error:
        assert "native must be True, False or None, not 'yes'" in str(error), error
    else:
        raise AssertionError
    assert os.environ['VMM_LIMIT'] == '50%'
    vmmcache.install(native=0)  # as False
assert not vmmcache.capabilities()['native']
""", VMM_LIMIT="50%")


class EnvironmentTest(ProgramTest):
    """What is wrong with a variable is said by install(), not by the first tensor."""

    def test_variables_that_the_trial_does_not_need(self):
        for wrong, why in (({"VMM_DRIVER": "cpu"}, "VMM_DRIVER=cpu: not one of: cuda, host, sim"),
                           ({"VMM_DRIVER": "HOST"}, "VMM_DRIVER=HOST: not one of"),
                           ({"VMM_MONITOR": "rel"}, "VMM_MONITOR=rel: not 0, 1 or the path of a folder")):
            self.fails(BEGIN + "vmmcache.install(native=False)", "InstallError", why, **wrong)


class InstallTest(ProgramTest):
    def test_host_memory_is_never_taken_for_a_gpu_s(self):
        for driver in ("", "cuda"):
            self.fails(BEGIN + "vmmcache.install()\nvmmcache.mem_get_info()",
                       "cannot be opened" if has_cuda() else "was built without the CUDA driver", VMM_DRIVER=driver,
                       CUDA_VISIBLE_DEVICES="")
        self.succeeds(BEGIN + "vmmcache.install()\nvmmcache.mem_get_info()", VMM_DRIVER="host",
                      CUDA_VISIBLE_DEVICES="")

    def test_settings_may_change_after_a_device_that_could_not_be_opened(self):
        self.succeeds(BEGIN + """
import os
for device in (0, 1):
    try:
        vmmcache.mem_get_info(device)
    except vmmcache.VmmError as error:
        assert 'VMM_DECAY_MS' in str(error), error
        continue
    raise AssertionError
del os.environ['VMM_DECAY_MS']
vmmcache.install(limit='64MiB')
if os.fork() == 0:
    vmmcache.set_memory_limit(None)
    os._exit(0)
assert os.wait()[1] == 0
vmmcache.set_memory_limit('32MiB')
""", VMM_DECAY_MS="junk")

    def test_the_recording_has_the_name_that_was_given(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.%p.trace")
            said = self.succeeds(BEGIN + f"""
import os
vmmcache.install(limit='64MiB')
assert os.listdir({folder!r}) == [], os.listdir({folder!r})
vmmcache.mem_get_info()
print('pid', os.getpid())
""", VMM_TRACE=path, VMM_MONITOR=folder)
            self.assertEqual(os.listdir(folder), [f"run.{said.split()[1]}.trace"])

    def test_what_hooks_cannot_say_is_in_the_log(self):
        said = self.succeeds(BEGIN + """
vmmcache.install()
library = vmmcache._library.load()
library.vmm_torch_free(4096, 512, 0, None)
before = vmmcache._library.last_error()
vmmcache.mem_get_info()
library.vmm_torch_record_stream(8192, None)
library.vmm_torch_memory_fraction(7.5, 0)
assert 'nothing was allocated on device 0' in before, before
""", VMM_LOG="stderr").splitlines()
        self.assertEqual([line.split(": ")[:3] for line in said if "vmm_torch" in line], [
            ["vmmcache", "vmm_torch_free", "VMM_ERR_UNKNOWN_POINTER"],
            ["vmmcache", "vmm_torch_record_stream", "VMM_ERR_UNKNOWN_POINTER"],
            ["vmmcache", "vmm_torch_memory_fraction", "VMM_ERR_INVALID_ARGUMENT"]], said)

    def test_tensors_come_from_the_library(self):
        self.succeeds(BEGIN + """
vmmcache.install()
vmmcache.install()
tensor = torch.cuda.caching_allocator_alloc(8 * MIB)
assert vmmcache.memory_allocated() == 8 * MIB
torch.cuda.caching_allocator_delete(tensor)
assert vmmcache.memory_allocated() == 0 and vmmcache.memory_reserved() >= 8 * MIB
torch.cuda.empty_cache()
assert vmmcache.memory_reserved() == 0
torch.cuda.set_per_process_memory_fraction(0.5)
from vmmcache._figures import Figures
assert Figures(0).number('limit_bytes') == vmmcache.mem_get_info()[1] // 2
""")

    def test_every_hook_is_set_and_works(self):
        self.succeeds(BEGIN + """
import ctypes
vmmcache.install()
hooks = torch._C.current.hooks
assert len(hooks) == 8, hooks
tensor = torch.cuda.caching_allocator_alloc(8 * MIB)
size = ctypes.c_size_t()
assert hooks['set_base_alloc_fn'](tensor + 5 * MIB, ctypes.byref(size)) == tensor
assert size.value == 8 * MIB
hooks['set_record_stream_fn'](tensor, 77)
able = vmmcache.capabilities()
assert able['cuda_graphs'] and able['record_stream'] and able['installed'], able
assert able['missing_hooks'] == [] and able['torch'] == torch.__version__, able
""")

    def test_sizes_of_versions_that_mix_them_up_are_not_trusted(self):
        """PyTorch 2.5 to 2.8 may free a block with the size of the block that was at its address before."""
        for version in ("2.5.0", "2.6.0+cu124", "2.8.1"):
            self.succeeds(BEGIN + f"""
torch.__version__ = '{version}'
vmmcache.install()
tensor = torch.cuda.caching_allocator_alloc(8 * MIB)
torch._C.current.blocks[tensor] = (512, 0)
torch.cuda.caching_allocator_delete(tensor)
stats = torch.cuda.memory_stats()
for name in ('allocated_bytes', 'requested_bytes', 'active_bytes', 'allocation'):
    for pool in ('all', 'large_pool', 'small_pool'):
        assert stats[name + '.' + pool + '.current'] == 0, (name, pool)
""")

    def test_hooks_that_a_version_lacks_are_told(self):
        self.succeeds(BEGIN + """
torch._C._CUDAPluggableAllocator.missing = ('set_release_pool', 'set_record_stream_fn')
vmmcache.install()
able = vmmcache.capabilities()
assert able['missing_hooks'] == ['set_record_stream_fn', 'set_release_pool'], able
assert not able['cuda_graphs'] and not able['record_stream'], able
""")

    def test_without_patch_pytorch_answers_as_before(self):
        self.fails(BEGIN + "vmmcache.install(patch=False)\ntorch.cuda.memory_allocated()",
                   "does not yet support")


class WarningTest(ProgramTest):
    """What install() says once, in one line, of the plug-in. test_native.py has what it says of the class."""

    def warnings(self, given="native=False", before="", **environment):
        said = self.succeeds(BEGIN + f"""
import warnings
{before}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    vmmcache.install({given})
    vmmcache.install({given})
assert all(warning.category is vmmcache.VmmWarning and warning.filename == '<string>' for warning in caught)
for warning in caught:
    print(warning.message)
""", PYTHONWARNINGS="", **environment)
        return said.splitlines()

    def test_install_says_what_does_not_work(self):
        more = ("the profiler's profile_memory, stacks of C++ and annotations in snapshots, "
                "memory that PyTorch frees before a request fails")
        self.assertEqual(self.warnings(), [
            "vmmcache uses PyTorch's plug-in interface; these do not work with it: torch.cuda.MemPool, sharing CUDA "
            "tensors with other processes, NCCL's registration of tensor memory, torch.backends.cudnn.benchmark, "
            + more + ", torch.compile(mode='reduce-overhead') without install(plain_graphs=True)"])
        self.assertEqual(self.warnings("native=False, plain_graphs=True"), [
            "vmmcache uses PyTorch's plug-in interface; these do not work with it: torch.cuda.MemPool, sharing CUDA "
            "tensors with other processes, NCCL's registration of tensor memory, torch.backends.cudnn.benchmark, "
            + more])

    def test_old_versions_lack_more(self):
        line, = self.warnings(before="torch._C._CUDAPluggableAllocator.missing = "
                                     "('set_release_pool', 'set_record_stream_fn')")
        self.assertTrue(line.endswith(", CUDA graphs, Tensor.record_stream"), line)

    def test_capabilities_say_it_too(self):
        self.succeeds(BEGIN + """
vmmcache.install(plain_graphs=True)
unsupported = vmmcache.capabilities()['unsupported']
assert len(unsupported) == 7 and unsupported[0] == 'torch.cuda.MemPool', unsupported
""")

    def test_expandable_segments_do_nothing(self):
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            for value in ("expandable_segments:True", "pinned_reserve_segment_size_mb:64, expandable_segments : true"):
                lines = self.warnings(**{name: value})
                self.assertEqual(len(lines), 2, lines)
                self.assertTrue(lines[0].startswith(f"{name} has expandable_segments:True, which has no effect"),
                                lines)
            for value in ("expandable_segments:False", "pinned_reserve_segment_size_mb:64,unknown:1", ""):
                self.assertEqual(len(self.warnings(**{name: value})), 1)

    def test_settings_without_effect_are_named_in_one_line(self):
        line, _ = self.warnings(PYTORCH_ALLOC_CONF="roundup_power2_divisions:[256:1,>:8],throw_on_cudamalloc_oom:True,"
                                                   "expandable_segments_reserve_by_class:[a:0.5]")
        self.assertEqual(line, "PYTORCH_ALLOC_CONF has roundup_power2_divisions, throw_on_cudamalloc_oom, "
                               "expandable_segments_reserve_by_class, without effect on vmmcache: see "
                               "docs/pytorch.md#settings")

    def test_what_only_the_class_follows_is_named(self):
        line, _ = self.warnings(PYTORCH_CUDA_ALLOC_CONF="graph_capture_record_stream_reuse:True,"
                                                        "per_process_memory_fraction:0.5")
        self.assertEqual(line, "PYTORCH_CUDA_ALLOC_CONF has per_process_memory_fraction, "
                               "graph_capture_record_stream_reuse, without effect on vmmcache: see "
                               "docs/pytorch.md#settings")

    def test_another_allocator_that_was_chosen_stays(self):
        self.fails(BEGIN + "vmmcache.install()", "PYTORCH_ALLOC_CONF has backend:cudaMallocAsync, which is another "
                        "allocator", PYTORCH_ALLOC_CONF="max_split_size_mb:20,backend:cudaMallocAsync")


class PatchTest(ProgramTest):
    def test_it_is_the_default(self):
        self.succeeds(BEGIN + """
vmmcache.install()
assert torch.cuda.memory_allocated() == 0
assert 'torch._C._cuda_memoryStats' in vmmcache.capabilities()['patched']
""")

    def test_functions_of_pytorch_answer_from_the_library(self):
        self.succeeds(BEGIN + """
from torch.cuda import memory_stats, max_memory_allocated as imported_before
vmmcache.install(patch=True)
tensor = torch.cuda.caching_allocator_alloc(8 * MIB)
for module in (torch.cuda, memory):
    assert module.memory_allocated() == 8 * MIB
    assert module.max_memory_allocated() == 8 * MIB
    assert module.memory_reserved() >= 8 * MIB
    assert module.max_memory_reserved() >= 8 * MIB
    assert module.memory_stats()['allocation.all.current'] == 1
    assert 'libvmmcache' in module.memory_summary()
    assert module.get_allocator_backend() == 'vmmcache'
assert imported_before() == 8 * MIB and memory_stats()['active.all.current'] == 1
torch.cuda.caching_allocator_delete(tensor)
torch.cuda.reset_peak_memory_stats()
torch.cuda.reset_accumulated_memory_stats()
assert imported_before() == 0 and memory_stats()['allocated_bytes.all.freed'] == 0
""")

    def test_torch_accelerator_answers_from_the_library(self):
        self.succeeds(BEGIN + """
accelerator = torch.accelerator
vmmcache.install(patch=True)
assert accelerator.memory_stats() == {}  # as PyTorch's own before CUDA is used
tensor = torch.cuda.caching_allocator_alloc(8 * MIB)
assert accelerator.memory_stats()['allocation.all.current'] == 1
assert accelerator.memory_allocated() == 8 * MIB and accelerator.max_memory_allocated() == 8 * MIB
assert accelerator.memory_reserved() >= 8 * MIB
assert accelerator.get_memory_info() == vmmcache.mem_get_info()
torch.cuda.caching_allocator_delete(tensor)
accelerator.empty_cache()
assert accelerator.memory_reserved() == 0 and accelerator.max_memory_reserved() >= 8 * MIB
accelerator.reset_peak_memory_stats()
accelerator.reset_accumulated_memory_stats()
assert accelerator.max_memory_reserved() == 0
assert accelerator.memory_stats()['allocated_bytes.all.freed'] == 0
""")

    def test_history_is_known_to_be_enabled(self):
        """Graph trees record history for a while, unless the program records it already."""
        self.succeeds(BEGIN + """
vmmcache.install(patch=True)
assert torch._C._cuda_isHistoryEnabled() is False
memory._record_memory_history()
assert torch._C._cuda_isHistoryEnabled() is True
memory._record_memory_history('state', context=None)
assert torch._C._cuda_isHistoryEnabled() is True
memory._record_memory_history(None)
assert torch._C._cuda_isHistoryEnabled() is False
""")

    def test_graph_trees_say_what_to_do(self):
        for call in ("_cuda_checkPoolLiveAllocations(0, (0, 1), set())", "_cuda_getCheckpointState(0, (0, 1))",
                     "_cuda_setCheckpointPoolState(0, None, [], [])"):
            self.fails(BEGIN + f"vmmcache.install(patch=True)\ntorch._C.{call}", "VmmError",
                       "torch.compile(mode='reduce-overhead')", "install(plain_graphs=True)")

    def test_arguments_of_later_versions_are_accepted(self):
        self.succeeds(BEGIN + """
vmmcache.install(patch=True)
torch._C._cuda_record_memory_history('all', 'all', 'all', 1000, False, False, False, [], record_host=True)
torch._C._cuda_record_memory_history('all', 'all', 'all', 1000, False, False, False, [], True)
picture = torch._C._cuda_memorySnapshot(None, record_host=True)
assert vmmcache.check_snapshot(picture) == []
assert torch._C._cuda_memorySnapshot((0, 0, False), True)['device_traces'] == [[]]
torch._C._cuda_record_memory_history_legacy(False, record_host=True)
""")

    def test_history_and_snapshots_too(self):
        self.succeeds(BEGIN + """
vmmcache.install(patch=True)
memory._record_memory_history(max_entries=1000)
tensor = torch.cuda.caching_allocator_alloc(8 * MIB)
picture = memory._snapshot()
assert vmmcache.check_snapshot(picture) == []
assert [event['action'] for event in picture['device_traces'][0]].count('alloc') == 1
assert torch.cuda.memory_snapshot() == picture['segments']
assert torch.cuda.memory_snapshot((1, 2)) == []
memory._record_memory_history(None)
assert memory._snapshot()['device_traces'] == [[]]
torch._C._cuda_record_memory_history_legacy(True, True, 10, True)
torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(8 * MIB))
trace = memory._snapshot()['device_traces'][0]
assert [bool(event['frames']) for event in trace if event['action'] in ('alloc', 'free_requested')] == [
    True, False], trace
torch._C._cuda_record_memory_history_legacy(False)
assert memory._snapshot()['device_traces'] == [[]]
""")

    def test_a_fraction_does_not_exceed_the_limit_of_the_settings(self):
        code = BEGIN + """
from vmmcache._figures import Figures
vmmcache.install(%s)
total = vmmcache.mem_get_info()[1]
for fraction, limit in ((1.0, total // 4), (0.5, total // 4), (0.125, total // 8), (1.0, total // 4)):
    memory.set_per_process_memory_fraction(fraction)
    assert Figures(0).number('limit_bytes') == limit, (fraction, Figures(0).number('limit_bytes'))
vmmcache.set_memory_limit(None)
assert Figures(0).number('limit_bytes') == 0
"""
        self.succeeds(code % "limit='25%'")
        self.succeeds(code % "", VMM_LIMIT="25%")

    def test_limits_are_told_as_fractions(self):
        self.succeeds(BEGIN + """
vmmcache.install(patch=True)
assert torch.cuda.get_per_process_memory_fraction() == 1.0
vmmcache.set_memory_limit(vmmcache.mem_get_info()[1] // 4)
assert torch.cuda.get_per_process_memory_fraction() == 0.25
""")

    def test_devices_are_those_that_pytorch_counts(self):
        self.fails(BEGIN + "vmmcache.install(patch=True)\ntorch.cuda.current_device()\n"
                   "torch.cuda.memory_allocated(1)", "ValueError: there is no device 1: devices are 0 to 0")

    def test_a_later_patch_is_no_other_setting(self):
        self.succeeds(BEGIN + """
vmmcache.install(patch=False)
vmmcache.install()
assert torch.cuda.memory_allocated() == 0
assert 'torch.cuda.memory_allocated' in vmmcache.capabilities()['patched']
""")

    def test_plain_graphs(self):
        self.succeeds(BEGIN + """
from torch._inductor import config
from torch._functorch import config as functions
vmmcache.install()
assert config.triton.cudagraph_trees and functions.donated_buffer
vmmcache.install(plain_graphs=True)
assert not config.triton.cudagraph_trees and not functions.donated_buffer
""")
        self.succeeds(BEGIN + """
from torch._functorch import config
del config.donated_buffer
vmmcache.install(plain_graphs=True)
assert not hasattr(config, 'donated_buffer')
""")


if __name__ == "__main__":
    unittest.main()
