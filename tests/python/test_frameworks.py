"""The interfaces of torch_memory_saver and of vLLM's sleep mode, as the frameworks call them: each test replays the
calls of a source that it names."""
import os
import unittest

from support import FolderTest, ProgramTest
from test_sleep import BEGIN

SAVER = BEGIN + """
from vmmcache.memory_saver import torch_memory_saver as saver
"""


class MemorySaverTest(ProgramTest):
    def test_simple(self):
        """torch_memory_saver, test/examples/simple.py: weights and KV cache with tags, pause and resume in stages."""
        self.succeeds(SAVER + """
saver.hook_mode = 'torch'
normal = tensor(value=100)
with saver.region(tag='kv_cache'):
    cache = tensor(16, 1)
with saver.region(tag='weights', enable_cpu_backup=True):
    weights = tensor(8, 2)
addresses = cache.data_ptr(), weights.data_ptr()
reserved = vmmcache.memory_reserved()
saver.pause('kv_cache')
assert vmmcache.memory_reserved() <= reserved - 16 * MIB
saver.pause('weights')
assert vmmcache.memory_reserved() <= reserved - 24 * MIB
saver.resume('weights')
assert holds(weights, 2)
saver.resume('kv_cache')
fill(cache, 3)
assert holds(cache, 3) and holds(normal, 100) and addresses == (cache.data_ptr(), weights.data_ptr())
saver.pause()
assert asleep() == {None: False, 'kv_cache': True, 'weights': True}
saver.pause()
saver.resume()
assert holds(weights, 2)
""")

    def test_cpu_backup(self):
        """torch_memory_saver, test/examples/cpu_backup.py, and get_cpu_backup() of torch_memory_saver/entrypoint.py."""
        self.succeeds(SAVER + """
with saver.region(enable_cpu_backup=True):
    saved = tensor(value=10)
with saver.region(enable_cpu_backup=False):
    lost = tensor(value=20)
assert saver.get_cpu_backup(saved) is None
saver.pause()
assert saver.get_cpu_backup(lost) is None
backup = saver.get_cpu_backup(saved)
assert not backup.is_cuda and holds(backup, 10)
fill(saver.get_cpu_backup(saved, zero_copy=True), 11)
assert holds(backup, 10)
saver.resume()
assert holds(saved, 11)
""")

    def test_cuda_graph(self):
        """torch_memory_saver, test/examples/simple.py (its graph), SGLang's adapter, which passes keywords, and
        lightllm, which passes a pool: https://github.com/ModelTC/lightllm cuda_graph.py."""
        self.succeeds(SAVER + """
graph = torch.cuda.CUDAGraph()
with saver.cuda_graph(cuda_graph=graph, pool=None, stream=None, tag='cuda_graph'):
    inside = tensor(value=1)
second = torch.cuda.CUDAGraph()
with saver.cuda_graph(second, pool=(0, 99), tag='cuda_graph'):
    other = tensor(value=2)
saver.pause('cuda_graph')
assert asleep() == {None: False, 'cuda_graph': True}
assert vmmcache.memory_reserved() == 0
saver.resume('cuda_graph')
assert asleep()['cuda_graph'] is False
""")

    def test_nested_regions(self):
        """torch_memory_saver, test/examples/nested_region.py."""
        self.succeeds(SAVER + """
with saver.region(tag='outer'):
    first = tensor(4)
    with saver.region(tag='inner'):
        inner = tensor(8)
    last = tensor(4)
saver.pause('inner')
assert asleep() == {None: False, 'outer': False, 'inner': True}
saver.resume('inner')
saver.pause('outer')
assert vmmcache.sleep_state()['outer']['asleep_bytes'] >= 8 * MIB
saver.resume('outer')
""")

    def test_a_training_engine(self):
        """torch_memory_saver, test/examples/training_engine.py: everything can be paused, except in disable()."""
        self.succeeds(SAVER + """
weights = [tensor(size, 42) for size in (16, 2, 1)]
saver.pause()
assert vmmcache.memory_reserved() == 0
with saver.disable():
    temporary = tensor(8, 53)
    assert holds(temporary, 53)
    del temporary
saver.pause()
saver.resume()
assert all(holds(one, 42) for one in weights)
saver.pause('default')
assert vmmcache.sleep_state()[None]['asleep']
saver.resume('default')
""", TMS_INIT_ENABLE="1", TMS_INIT_ENABLE_CPU_BACKUP="1")

    def test_disable_in_a_region(self):
        """slime and torch_memory_saver/entrypoint.py: disable() inside a region."""
        self.succeeds(SAVER + """
with saver.region(tag='weights'):
    with saver.disable():
        buffer = tensor(8, 3)
    weights = tensor(4)
saver.pause()
assert holds(buffer, 3) and vmmcache.memory_reserved() >= 8 * MIB
saver.resume()
""")

    def test_sglang_s_adapter(self):
        """sgl-project/sglang, python/sglang/srt/utils/torch_memory_saver_adapter.py, and its scheduler, which pauses
        tags that may have nothing and starts workers in configure_subprocess()."""
        self.succeeds(SAVER + """
import os, subprocess, sys
vmmcache.memory_saver.stand_in()
import torch_memory_saver
adapter = torch_memory_saver.torch_memory_saver
assert adapter.enabled
for tag in ('kv_cache', 'weights', 'cuda_graph'):
    adapter.pause(tag=tag)
    adapter.resume(tag=tag)
os.environ['VMMCACHE_MEMORY_SAVER'] = '0'
with torch_memory_saver.configure_subprocess():
    started = {**os.environ}
    del os.environ['VMMCACHE_AUTOINSTALL']
assert started['VMMCACHE_AUTOINSTALL'] == started['VMMCACHE_MEMORY_SAVER'] == '1'
assert 'VMMCACHE_AUTOINSTALL' not in os.environ and os.environ['VMMCACHE_MEMORY_SAVER'] == '0'
started['PYTHONPATH'] = os.path.dirname(vmmcache.__file__) + '/startup:' + started['PYTHONPATH']
subprocess.run([sys.executable, '-c', '''
import torch
import torch_memory_saver, vmmcache
assert vmmcache.is_installed()
with torch_memory_saver.torch_memory_saver.region():
    torch.empty(1 << 20)
'''], env=started, check=True)
""")


# As much of vLLM as its plug-ins and workers use: vllm/device_allocator/cumem.py and sleep_mode_backend.py.
CUMEM = "class CuMemAllocator:\n    pass\n"
BACKENDS = """
class SleepModeBackend:
    def __init__(self):
        self._state = 'RUNNING'
    def state(self):
        return self._state
    @classmethod
    def is_supported(cls):
        return True

class SleepModeBackendFactory:
    registry = {}
    @classmethod
    def register_backend(cls, name, module_path, class_name):
        if name in cls.registry:
            raise ValueError(f'{name} is registered')
        cls.registry[name] = module_path, class_name
"""
WORKER = BEGIN + """
from vmmcache.vllm import register
register()
from vllm.device_allocator.cumem import CuMemAllocator
allocator = CuMemAllocator.get_instance()
"""


class VllmTest(ProgramTest, FolderTest):
    def setUp(self):
        super().setUp()
        for name, text in (("__init__", ""), ("device_allocator/__init__", ""), ("device_allocator/cumem", CUMEM),
                           ("device_allocator/sleep_mode_backend", BACKENDS)):
            self.write(f"vllm/{name}.py", text)

    def does(self, code, **environment):
        path = f"import sys\nsys.path.insert(0, {self.folder!r})\n"
        return self.succeeds(path + code, **{"VLLM_PLUGINS": "other, vmmcache", **environment})

    def test_a_worker(self):
        """vllm/v1/worker/gpu_worker.py: _maybe_get_memory_pool_context(), sleep(), wake_up()."""
        self.does(WORKER + """
assert allocator is CuMemAllocator.get_instance() and allocator.get_current_usage() == 0
with allocator.use_memory_pool(tag='weights'):
    weights = tensor(8, 1)
with allocator.use_memory_pool(tag='kv_cache'):
    cache = tensor(16, 2)
plain = tensor(value=3)
assert allocator.get_current_usage() == 24 * MIB
with vmmcache.region('not of vllm'):
    other = tensor(value=4)
allocator.sleep(offload_tags=('weights',))
assert asleep() == {None: False, 'weights': True, 'kv_cache': True, 'not of vllm': False}
assert vmmcache.sleep_state()['kv_cache']['backup_bytes'] == 0
allocator.wake_up(['weights'])
assert holds(weights, 1) and asleep()['kv_cache']
allocator.wake_up(['kv_cache'])
allocator.sleep(offload_tags=tuple())
allocator.wake_up()
allocator.wake_up(['kv_cache', 'nothing'])
allocator.discard(('kv_cache',))
assert asleep()['kv_cache'] and not asleep()['weights']
allocator.wake_up(None)
assert holds(plain, 3) and holds(other, 4)
""")

    def test_basic_cumem(self):
        """tests/basic_correctness/test_cumem.py: the default tag is saved, others are discarded, graphs replay."""
        self.does(WORKER + """
with allocator.use_memory_pool():
    weight = tensor(value=1)
with allocator.use_memory_pool(tag='discard'):
    cache = tensor()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = tensor(value=2)
allocator.sleep()
assert asleep() == {None: False, 'default': True, 'discard': True}
allocator.wake_up()
assert holds(weight, 1) and holds(y, 2)
with allocator.use_memory_pool(tag='again'):
    pass
allocator.sleep('default')
allocator.wake_up()
""")

    def test_too_little_memory_to_wake_is_an_error(self):
        """tests/basic_correctness/test_cumem.py, test_python_error: a RuntimeError, and a second try works."""
        self.does(WORKER + """
with allocator.use_memory_pool():
    x = tensor(48)
allocator.sleep(offload_tags=())
y = tensor(48)
raises(RuntimeError, 'cannot wake', allocator.wake_up)
del y
allocator.wake_up()
""", VMM_LIMIT="64MiB")

    def test_the_sleep_mode_backend(self):
        """vllm/device_allocator/sleep_mode_backend.py (#44074): registered by name, loaded by module and class."""
        self.does(WORKER + """
import importlib
from vllm.device_allocator.sleep_mode_backend import SleepModeBackend, SleepModeBackendFactory
module, name = SleepModeBackendFactory.registry['vmmcache']
kind = getattr(importlib.import_module(module), name)
assert kind is getattr(importlib.import_module(module), name) and issubclass(kind, SleepModeBackend)
backend = kind()
with allocator.use_memory_pool(tag='weights'):
    weights = tensor(8, 1)
with allocator.use_memory_pool(tag='kv_cache'):
    cache = tensor(16)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = tensor(value=2)
assert backend.state() == 'RUNNING'
backend.suspend(level=1)
assert backend.state() == 'SUSPENDED' and vmmcache.memory_reserved() == 0
backend.resume(['weights'])
assert holds(weights, 1) and holds(y, 2)
assert asleep() == {None: False, 'weights': False, 'kv_cache': True}
backend.resume(['kv_cache'])
backend.suspend(level=2)
assert vmmcache.sleep_state()['kv_cache']['asleep'] and vmmcache.memory_reserved() == 0
backend.resume()
assert backend.state() == 'RUNNING' and holds(y, 2)
backend.discard(('kv_cache',))
assert asleep()['kv_cache'] and kind.preserves_communicators()
""")

    def test_host_memory_goes_back_after_a_wake(self):
        """tests/basic_correctness/test_cumem.py: test_wake_up_host_memory_release()."""
        code = WORKER + """
with allocator.use_memory_pool(tag='weights'):
    weights = tensor(8, 1)
allocator.sleep('weights')
saved = vmmcache.sleep_state()['weights']['backup_bytes']
allocator.wake_up(['weights'])
print(holds(weights, 1), saved > 0, vmmcache.sleep_state()['weights']['backup_bytes'] > 0)
"""
        for released, told in ((None, "True True True"), ("0", "True True True"), ("1", "True True False")):
            environment = {"VLLM_SLEEP_MODE_RELEASE_HOST_MEMORY": released} if released else {}
            self.assertEqual(self.does(code, **environment).strip(), told)

    def test_the_plug_in_is_loaded_twice(self):
        """vllm/plugins/__init__.py: plug-ins may be loaded several times."""
        self.does(WORKER + "register()\nassert CuMemAllocator.get_instance() is allocator")

    def test_it_installs_only_where_it_is_asked_for(self):
        code = "import torch, vmmcache\nfrom vmmcache.vllm import register\nregister()\nprint(vmmcache.is_installed())"
        for environment, told in (({"VLLM_PLUGINS": ""}, "False"), ({"VLLM_PLUGINS": "others"}, "False"), ({}, "True"),
                                  ({"VLLM_PLUGINS": "", "VMMCACHE_AUTOINSTALL": "1"}, "True")):
            self.assertEqual(self.does(code, **environment).strip(), told)

    def test_an_older_vllm_has_no_backends(self):
        os.remove(self.path("vllm/device_allocator/sleep_mode_backend.py"))
        self.does(WORKER + "assert CuMemAllocator.__module__ == 'vmmcache.vllm'")

    def test_what_fails_is_told_in_one_line(self):
        said = self.does("import torch\ntorch._C.is_initialized = True\n"
                         "from vmmcache.vllm import register\nregister()\n"
                         "from vllm.device_allocator.cumem import CuMemAllocator\nprint(CuMemAllocator.__module__)")
        self.assertEqual(said.splitlines()[1:], ["vllm.device_allocator.cumem"], said)
        self.assertIn("vLLM runs without it: CUDA is initialised already", said)


if __name__ == "__main__":
    unittest.main()
