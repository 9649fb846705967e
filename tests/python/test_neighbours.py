"""Processes on one device, from Python."""
import os
import tempfile

from support import ProgramTest

SCENE = """if True:
    import subprocess, sys, time
    import vmmcache
    from support import alloc, free, MIB
    from vmmcache import _figures
    from vmmcache._config import configure
    configure(neighbours=True)
"""
HOLDER = SCENE + """
    free(alloc(48 * MIB), 48 * MIB)
    print('ready', flush=True)
    sys.stdin.read()
"""
CLAIMANT = SCENE + """
    holder = subprocess.Popen([sys.executable, '-B', '-c', %r], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b'ready\\n'
    time.sleep(1)
    own, other = vmmcache.neighbours()
    assert own['is_self'] and not other['is_self'] and other['pid'] == holder.pid, (own, other)
    assert other['idle_bytes'] == other['reserved_bytes'] == 48 * MIB, other
    assert vmmcache.available() == 64 * MIB, vmmcache.available()
    alloc(40 * MIB)
    assert _figures.Figures(0).number('neighbour_claims') == 1
    holder.communicate()
    print('shared')
""" % HOLDER

ENGINE = """if True:
    import sys, torch, vmmcache
    from support import MIB
    vmmcache.install(neighbours=True)
    with vmmcache.region('weights'):
        weights = torch.empty(48 * MIB).fill_(3)
    vmmcache.sleep(on_claim=True)
    print('ready', flush=True)
    sys.stdin.readline()
    assert vmmcache.sleep_state()['weights']['asleep'], vmmcache.sleep_state()
    assert vmmcache.wake() >= 48 * MIB
    assert weights.tolist() == [3] * weights.nbytes
    print('woke', flush=True)
"""
TRAINER = SCENE + """
    engine = subprocess.Popen([sys.executable, '-B', '-c', %r], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert engine.stdout.readline() == b'ready\\n'
    free(alloc(40 * MIB), 40 * MIB)
    out, _ = engine.communicate(b'\\n')
    assert out == b'woke\\n' and engine.returncode == 0, (out, engine.returncode)
    print('took turns')
""" % ENGINE


class NeighboursTest(ProgramTest):
    def share(self, code, **more):
        """Runs a program and those that it starts on one device of 64 MiB; nothing else is left of them."""
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            device = os.path.join(folder, "device")
            with open(device, "wb") as file:
                file.truncate(64 << 20)
            said = self.succeeds(code, VMM_DRIVER="host", VMM_HOST_DEVICE=device, VMM_NEIGHBOURS_DIR=folder, **more)
            self.assertEqual(os.listdir(folder), ["device"])
        return said

    def test_idle_memory_of_another_process_serves(self):
        self.assertIn("shared", self.share(CLAIMANT, fake=False))

    def test_offered_memory_of_another_process_sleeps(self):
        self.assertIn("took turns", self.share(TRAINER, VMM_NEIGHBOURS_WAIT_MS="4000"))

    def test_alone_there_is_none(self):
        code = """if True:
            import vmmcache
            assert vmmcache.neighbours() == []
            assert vmmcache.available() > 0
            """
        self.succeeds(code, fake=False)
